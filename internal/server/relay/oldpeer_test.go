package relay

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// An old agent's link waits for a tunnel whose client does not read, for ten
// seconds and no longer; then that tunnel goes.
func TestStuckTunnelOfAnOldAgent(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(0)
		stuck, c := w.established(a, 1, 0)
		other, oc := w.established(a, 2, 0)
		c.gate(true)
		for range 10 {
			w.data(a, 1, kib(32)) // one is being written, eight are queued
		}
		w.data(a, 2, "behind it")
		start := time.Now()
		w.wait(9 * time.Second)
		w.obs.with(func() {
			if oc.data() != "" || w.obs.blocked != 1 {
				t.Errorf("the reader does not wait; blocked %d", w.obs.blocked)
			}
		})
		w.within(stuck.Done(), 0, 2*time.Second)
		if took := time.Since(start); took < 10*time.Second {
			t.Errorf("given up after %v", took)
		}
		if end := c.told(); end.Reason != wire.ReasonStuck || !c.wasInterrupted() {
			t.Errorf("the client was told %+v", end)
		}
		if pk := a.take(wire.CloseRequest); pk.ConnectionID != 1 {
			t.Errorf("CLOSE_REQ %+v", pk)
		}
		equal(t, "the other tunnel's data", oc.data(), "behind it")
		w.closed(a, 1, 0)
		w.closeNow(other, a)
	})
}

// Short waits add up: ten seconds in a minute are too much.
func TestManyShortWaits(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(0)
		tun, c := w.established(a, 1, 0)
		c.gate(true)
		for range 9 {
			w.data(a, 1, kib(32))
		}
		for i := range 4 {
			w.data(a, 1, kib(32))
			w.wait(3 * time.Second)
			if i < 3 {
				w.alive(tun)
				c.gate(false) // lets all of it through
				synctest.Wait()
				c.gate(true)
				for range 9 {
					w.data(a, 1, kib(32))
				}
				synctest.Wait()
			}
		}
		w.over(tun)
		if end := c.told(); end.Reason != wire.ReasonStuck {
			t.Errorf("the client was told %+v", end)
		}
		a.take(wire.CloseRequest)
		w.closed(a, 1, 0)
	})
}

// Waits that are spread out are forgiven.
func TestRareWaitsAreForgiven(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(0)
		tun, c := w.established(a, 1, 0)
		for range 10 {
			c.gate(true)
			for range 10 {
				w.data(a, 1, kib(32))
			}
			w.wait(8 * time.Second)
			w.alive(tun)
			c.gate(false)
			w.wait(62 * time.Second)
		}
		w.alive(tun)
		w.closeNow(tun, a)
	})
}

// Whatever ends the tunnel frees the reader.
func TestWaitingReaderIsFreed(t *testing.T) {
	for name, end := range map[string]func(*Tunnel){
		"abort":   func(tun *Tunnel) { tun.Abort(wire.ReasonAborted, "") },
		"hang-up": func(tun *Tunnel) { tun.HangUp(); tun.Close() },
		"broken":  func(tun *Tunnel) { tun.Abort(wire.ReasonProtocolError, "") },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Config{}, func(w *world) {
				a := w.attach(0)
				tun, c := w.established(a, 1, 0)
				other, oc := w.established(a, 2, 0)
				c.gate(true)
				for range 12 {
					w.data(a, 1, kib(32))
				}
				w.data(a, 2, "behind it")
				w.wait(time.Second)
				end(tun)
				synctest.Wait()
				equal(t, "the other tunnel's data", oc.data(), "behind it")
				a.take(wire.CloseRequest)
				w.closed(a, 1, 0)
				w.within(tun.Done(), 0, time.Second)
				w.closeNow(other, a)
			})
		})
	}
}

// A link can be declared lost from elsewhere while its reader waits.
func TestLostWhileTheReaderWaits(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(0)
		tun, c := w.established(a, 1, 0)
		pending, pc := w.open()
		a.take(wire.DialRequest)
		c.gate(true)
		for range 12 {
			w.data(a, 1, kib(32))
		}
		synctest.Wait()
		a.peer.Lost(errFakeLost)
		wantFailed(t, pending, pc, wire.ReasonBackendLost, "")
		c.gate(false)
		w.over(tun)
		if len(c.data()) < 9*32<<10 || c.told().Reason != wire.ReasonLinkLost {
			t.Errorf("the client got %d bytes and %+v", len(c.data()), c.told())
		}
	})
}

func TestStallsForgetAfterAMinute(t *testing.T) {
	var s stalls
	now := time.Now()
	const limit = 10 * time.Second
	if s.left(now, limit) != limit {
		t.Error("something is missing from the start")
	}
	s.add(now, 0)
	s.add(now, 4*time.Second)
	s.add(now.Add(30*time.Second), 5*time.Second)
	for at, want := range map[time.Duration]time.Duration{30 * time.Second: time.Second, 59 * time.Second: time.Second} {
		if got := s.left(now.Add(at), limit); got != want {
			t.Errorf("after %v: %v left, want %v", at, got, want)
		}
	}
	if got := s.left(now.Add(61*time.Second), limit); got != 5*time.Second {
		t.Errorf("after the first minute: %v left", got)
	}
	if got := s.left(now.Add(24*time.Hour), limit); got != limit {
		t.Errorf("after a day: %v left", got)
	}
}
