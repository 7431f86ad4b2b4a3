package relay

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// write sends s in pieces of 32 KiB on a goroutine of its own, as an adapter's
// reader would, and then does what then says. The channel is closed behind that.
func (w *world) write(tun *Tunnel, s string, then func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for len(s) > 0 {
			n := min(len(s), 32<<10)
			if tun.Write(w.pool.payload(s[:n])) != nil {
				return
			}
			s = s[n:]
		}
		if then != nil {
			then()
		}
	}()
	return done
}

// credit makes a grant n bytes on id.
func (w *world) credit(a *fakeAgent, id wire.ConnectionID, n int64) {
	a.packet(wire.Packet{Type: wire.Credit, ConnectionID: id, Window: n})
	synctest.Wait()
}

func TestUpDataKeepsToTheAgentsCredit(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, _ := w.established(a, 1, 64<<10)
		all := kib(400)
		written := w.write(tun, all, nil)
		equal(t, "data within the first credit", a.data(1), all[:64<<10])
		if isClosed(written) {
			t.Error("the writer was not held back")
		}
		w.credit(a, 1, 200<<10)
		equal(t, "data within the second credit", a.data(1), all[:264<<10])
		w.credit(a, 1, 1<<20)
		equal(t, "all data", a.data(1), all)
		<-written
		if up, _ := tun.Bytes(); up != 400<<10 {
			t.Errorf("%d bytes counted", up)
		}
		w.closeNow(tun, a)
	})
}

// An agent that forgets its window holds the tunnel back until it grants.
func TestNoWindowMeansNoCredit(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, _ := w.established(a, 1, 0)
		<-w.write(tun, "hello", nil)
		equal(t, "data without credit", a.data(1), "")
		w.credit(a, 1, 3)
		equal(t, "data with some", a.data(1), "hel")
		w.credit(a, 1, 3)
		equal(t, "all data", a.data(1), "hello")
		w.closeNow(tun, a)
		tun, _ = w.established(a, 2, -10) // no better than none
		<-w.write(tun, "x", nil)
		equal(t, "data without credit", a.data(2), "")
		w.credit(a, 2, 1)
		w.closeNow(tun, a)
	})
}

func TestAbsurdCreditEndsThatTunnelOnly(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, c := w.established(a, 1, 0)
		other, _ := w.established(a, 2, 0)
		w.credit(a, 1, 0)
		w.over(tun)
		if c.told().Reason != wire.ReasonCreditViolation {
			t.Errorf("the client was told %+v", c.told())
		}
		if pk := a.take(wire.CloseRequest); pk.Reason != wire.ReasonCreditViolation {
			t.Errorf("CLOSE_REQ %+v", pk)
		}
		w.closed(a, 1, 0)
		w.closeNow(other, a)
	})
}

// Everything that is written before the answer waits for it.
func TestWriteWaitsForTheAnswer(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, _ := w.open()
		written := w.write(tun, "early", tun.CloseWrite)
		synctest.Wait()
		if isClosed(written) {
			t.Fatal("Write did not wait")
		}
		w.accept(a, 1, 100)
		<-written
		equal(t, "data", a.data(1), "early")
		a.take(wire.HalfClose)
		w.closeNow(tun, a)
	})
}

func TestEmptyWritesAreDropped(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, _ := w.established(a, 1, 100)
		if err := tun.Write(wire.Payload{}); err != nil {
			t.Error(err)
		}
		equal(t, "data", a.data(1), "")
		w.closeNow(tun, a)
	})
}

func TestWriteAfterTheEnd(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, _ := w.established(a, 1, 100)
		w.closeNow(tun, a)
		if err := tun.Write(w.pool.payload("x")); !errors.Is(err, ErrOver) {
			t.Errorf("Write: %v", err)
		}
		tun, _ = w.established(a, 2, 100)
		w.cut(a)
		if err := tun.Write(w.pool.payload("x")); !errors.Is(err, ErrOver) {
			t.Errorf("Write: %v", err)
		}
		w.over(tun)
	})
}

// Whatever ends the tunnel frees a writer that waits.
func TestBlockedWriterIsFreed(t *testing.T) {
	for name, end := range map[string]func(w *world, a *fakeAgent, tun *Tunnel){
		"abort":             func(_ *world, _ *fakeAgent, tun *Tunnel) { tun.Abort(wire.ReasonAborted, "") },
		"endpoint closes":   func(w *world, a *fakeAgent, _ *Tunnel) { w.closed(a, 1, 0) },
		"link lost":         func(w *world, a *fakeAgent, _ *Tunnel) { w.cut(a) },
		"violation":         func(w *world, a *fakeAgent, _ *Tunnel) { w.credit(a, 1, -1) },
		"hang-up, stuck":    func(_ *world, _ *fakeAgent, tun *Tunnel) { tun.HangUp() },
		"shutdown":          func(w *world, _ *fakeAgent, _ *Tunnel) { _ = w.relay.Shutdown(w.t.Context(), End{}) },
		"client goes while": func(_ *world, _ *fakeAgent, tun *Tunnel) { tun.Abort(wire.ReasonCanceled, "") },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Config{}, func(w *world) {
				a := w.attach(newAgent)
				tun, _ := w.established(a, 1, 1<<10)
				written := w.write(tun, kib(1000), nil)
				w.wait(6 * time.Second)
				end(w, a, tun)
				w.within(written, 0, time.Second)
				w.within(tun.Done(), 0, time.Second)
				synctest.Wait()
				a.mu.Lock()
				told := len(a.sent) > 0
				a.mu.Unlock()
				if told {
					a.take(wire.CloseRequest)
					w.closed(a, 1, 0)
				}
			})
		})
	}
}

func TestUploadKnowsWhatIsOld(t *testing.T) {
	start := time.Now()
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	for name, c := range map[string]struct {
		writes map[float64]int64 // by time
		now    float64
		least  int64 // must be known to be old
		most   int64 // is as old as that
	}{
		"nothing":            {nil, 100, 0, 0},
		"young":              {map[float64]int64{1: 10}, 5.9, 0, 0},
		"old":                {map[float64]int64{1: 10}, 6.1, 10, 10},
		"old and young":      {map[float64]int64{1: 10, 3: 5, 8: 7}, 9, 10, 15},
		"all old":            {map[float64]int64{1: 10, 3: 5, 8: 7}, 13, 22, 22},
		"a byte each second": {map[float64]int64{0: 1, 1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1, 7: 1, 8: 1, 9: 1, 10: 1, 11: 1}, 11.5, 2, 7},
	} {
		var u upload
		for s := 0.0; s <= c.now; s++ {
			if n, ok := c.writes[s]; ok {
				u.accept(n, at(s))
			}
		}
		if got := u.old(at(c.now)); got < c.least || got > c.most {
			t.Errorf("%s: %d bytes are known to be old, want %d to %d", name, got, c.least, c.most)
		}
	}
}

// An old agent's sending side knows no credit.
func TestUpToAnOldAgent(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(0)
		tun, _ := w.established(a, 1, 0)
		all := strings.Repeat(kib(32), 20)
		<-w.write(tun, all, tun.Close)
		equal(t, "data", a.data(1), all)
		a.take(wire.CloseRequest)
		w.closed(a, 1, 0)
		w.over(tun)
	})
}
