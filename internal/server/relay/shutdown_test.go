package relay

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

func TestShutdownAnswersEverybody(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		up, c := w.established(a, 1, 0)
		stuck, sc := w.established(a, 2, 0)
		closing, cc := w.established(a, 3, 0)
		dialing, dc := w.open()
		a.take(wire.DialRequest)
		sc.gate(true)
		w.data(a, 2, "x")
		closing.Close()
		a.take(wire.CloseRequest)
		if err := w.relay.Shutdown(w.t.Context(), End{}); err != nil {
			t.Fatal(err)
		}
		for _, tun := range []*Tunnel{up, stuck, closing, dialing} {
			w.over(tun)
		}
		for _, x := range []*fakeClient{c, sc, cc} {
			if x.told().Reason != wire.ReasonShutdown {
				t.Errorf("a client was told %+v", x.told())
			}
		}
		if c.wasInterrupted() || !sc.wasInterrupted() {
			t.Error("interrupted is who does not read, and only who does not")
		}
		wantFailed(t, dialing, dc, wire.ReasonShutdown, "the server is shutting down")
		closes := 0
		for range 4 {
			synctest.Wait()
			a.mu.Lock()
			pk := a.sent[0]
			a.sent = a.sent[1:]
			a.mu.Unlock()
			if pk.Type == wire.CloseRequest {
				closes++
				w.closed(a, pk.ConnectionID, 0)
			}
		}
		a.nothing()
		if closes != 3 {
			t.Errorf("the agent was told to close %d connections", closes)
		}
		late, lc := w.open()
		wantFailed(t, late, lc, wire.ReasonShutdown, "")
	})
}

// The text that the assembly gives is the client's.
func TestShutdownText(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, c := w.open()
		a.take(wire.DialRequest)
		if err := w.relay.Shutdown(w.t.Context(), End{wire.ReasonShutdown, "going to lunch"}); err != nil {
			t.Fatal(err)
		}
		wantFailed(t, tun, c, wire.ReasonShutdown, "going to lunch")
		a.take(wire.DialClose)
	})
}

func TestShutdownWaitsNoLongerThanItsContext(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, c := w.established(a, 1, 0)
		c.stubborn = true
		c.gate(true)
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		if err := w.relay.Shutdown(ctx, End{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: %v", err)
		}
		c.gate(false)
		w.over(tun)
		a.take(wire.CloseRequest)
		w.closed(a, 1, 0)
	})
}

func TestIdle(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		if !isClosed(w.relay.Idle()) {
			t.Error("a relay without tunnels is not idle")
		}
		a := w.attach(newAgent)
		tun, _ := w.established(a, 1, 0)
		idle, again := w.relay.Idle(), w.relay.Idle()
		if isClosed(idle) {
			t.Error("idle with a tunnel")
		}
		w.closeNow(tun, a)
		if !isClosed(idle) || !isClosed(again) {
			t.Error("not idle without a tunnel")
		}
	})
}

func TestSnapshot(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, c := w.established(a, 1, 1<<10)
		w.wait(time.Second)
		dialing, _ := w.open()
		a.take(wire.DialRequest)
		c.gate(true)
		w.data(a, 1, kib(32))
		w.data(a, 1, kib(32))
		<-w.write(tun, kib(3), nil)
		synctest.Wait()
		s := w.relay.Snapshot()
		if len(s.Peers) != 1 || len(s.Tunnels) != 2 {
			t.Fatalf("%+v", s)
		}
		p := s.Peers[0]
		if p.Info.AgentID != "agent" || p.Tunnels != 1 || p.Pending != 1 || p.Load != 1+dialWeight || p.Extensions != newAgent {
			t.Errorf("peer %+v", p)
		}
		one, two := s.Tunnels[0], s.Tunnels[1]
		if one.State != "open" || one.ConnectionID != 1 || one.BytesUp != 3<<10 || one.QueuedUp != 2<<10 ||
			one.BytesDown != 0 || one.QueuedDown != 32<<10 || one.Request.Address != "endpoint:80" || one.Opened.IsZero() {
			t.Errorf("tunnel %+v", one)
		}
		if two.State != "dialing" || two.ConnectionID != 0 || !two.Opened.IsZero() {
			t.Errorf("dial %+v", two)
		}
		if tun.DialDuration() != 0 || tun.Opened().IsZero() || dialing.Peer() != nil || dialing.ConnectionID() != 0 {
			t.Error("a tunnel's own words are wrong")
		}
		for _, x := range []*Tunnel{tun, dialing} {
			x.Abort(wire.ReasonAborted, "")
		}
		a.take(wire.CloseRequest)
		a.take(wire.DialClose)
		w.closed(a, 1, 0)
	})
}
