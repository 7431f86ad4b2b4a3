package relay

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// A client that half-closes and an endpoint that answers only then.
func TestClientHalfCloses(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, c := w.established(a, 1, 1<<10)
		<-w.write(tun, kib(2), tun.CloseWrite)
		a.nothing() // it waits behind the data
		w.credit(a, 1, 1<<20)
		a.take(wire.HalfClose)
		equal(t, "data", a.data(1), kib(2))
		w.data(a, 1, "the answer")
		a.packet(wire.Packet{Type: wire.HalfClose, ConnectionID: 1})
		a.take(wire.CloseRequest) // both are done
		w.alive(tun)
		equal(t, "the answer", c.data(), "the answer")
		w.closed(a, 1, 0)
		w.over(tun)
		if c.told().Abnormal() {
			t.Errorf("the client was told %+v", c.told())
		}
	})
}

func TestEndpointHalfCloses(t *testing.T) {
	for name, finish := range map[string]func(tun *Tunnel){
		"client half-closes too": func(tun *Tunnel) { tun.CloseWrite() },
		"client closes":          func(tun *Tunnel) { tun.Close() },
		"client hangs up":        func(tun *Tunnel) { tun.HangUp(); tun.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Config{}, func(w *world) {
				a := w.attach(newAgent)
				tun, c := w.established(a, 1, 1<<20)
				w.data(a, 1, "all I have")
				a.packet(wire.Packet{Type: wire.HalfClose, ConnectionID: 1})
				synctest.Wait()
				if got := c.events; len(got) != 2 || got[1] != "closewrite" {
					t.Fatalf("the client was told %v", got)
				}
				equal(t, "data down", c.data(), "all I have")
				<-w.write(tun, "and I go on", nil)
				finish(tun)
				equal(t, "data up", a.data(1), "and I go on")
				a.take(wire.CloseRequest)
				w.closed(a, 1, 0)
				w.over(tun)
				if w.obs.lastEnd(t).Abnormal() {
					t.Errorf("ended %+v", w.obs.lastEnd(t))
				}
			})
		})
	}
}

// A client that has half-closed and then closes still has what comes down until
// the agent has answered.
func TestCloseAfterAHalfClose(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, c := w.established(a, 1, 1<<20)
		tun.CloseWrite()
		tun.Close()
		a.take(wire.HalfClose)
		a.take(wire.CloseRequest)
		w.data(a, 1, "on its way")
		w.closed(a, 1, 0)
		w.over(tun)
		equal(t, "data", c.data(), "on its way")
	})
}

// The end marker waits behind the data for a slow client.
func TestHalfCloseBehindData(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, c := w.established(a, 1, 1<<20)
		c.gate(true)
		w.data(a, 1, kib(32))
		w.data(a, 1, kib(32))
		tun.CloseWrite()
		a.packet(wire.Packet{Type: wire.HalfClose, ConnectionID: 1})
		w.wait(time.Second)
		a.take(wire.HalfClose)
		a.take(wire.CloseRequest)
		w.closed(a, 1, 0)
		w.wait(8 * time.Second)
		c.gate(false)
		w.over(tun)
		equal(t, "data", c.data(), kib(32)+kib(32))
		if c.told().Abnormal() {
			t.Errorf("the client was told %+v", c.told())
		}
	})
}

func TestHalfCloseTimeout(t *testing.T) {
	for name, half := range map[string]func(tun *Tunnel, a *fakeAgent){
		"client":   func(tun *Tunnel, _ *fakeAgent) { tun.CloseWrite() },
		"endpoint": func(_ *Tunnel, a *fakeAgent) { a.packet(wire.Packet{Type: wire.HalfClose, ConnectionID: 1}) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Config{}, func(w *world) {
				a := w.attach(newAgent)
				tun, c := w.established(a, 1, 1<<20)
				half(tun, a)
				synctest.Wait()
				for range 10 { // something flows
					w.wait(4 * time.Minute)
					if name == "client" {
						w.data(a, 1, "x")
					} else {
						<-w.write(tun, "x", nil)
					}
				}
				w.alive(tun)
				w.within(tun.Done(), 4*time.Minute, 6*time.Minute)
				if c.told().Reason != wire.ReasonHalfCloseTimeout {
					t.Errorf("the client was told %+v", c.told())
				}
				if name == "client" {
					a.take(wire.HalfClose)
				}
				if pk := a.take(wire.CloseRequest); pk.Reason != wire.ReasonHalfCloseTimeout {
					t.Errorf("CLOSE_REQ %+v", pk)
				}
				w.closed(a, 1, 0)
			})
		})
	}
}

// An old agent, or a client that cannot, is told nothing: the answer still comes,
// and a silent tunnel is bounded.
func TestHalfCloseThatCannotBeCarried(t *testing.T) {
	for name, c := range map[string]struct {
		ext wire.Extensions
		can bool
	}{"old agent": {0, true}, "client that cannot": {newAgent, false}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Config{}, func(w *world) {
				a := w.attach(c.ext)
				can := func(r *Request) { r.CanHalfClose = c.can }
				tun, client := w.established(a, 1, 1<<20, can)
				<-w.write(tun, "request", tun.CloseWrite)
				a.nothing()
				w.wait(time.Minute)
				w.data(a, 1, "answer")
				synctest.Wait()
				equal(t, "the answer", client.data(), "answer")
				w.closed(a, 1, 0)
				w.over(tun)

				tun, _ = w.established(a, 2, 1<<20, can)
				tun.CloseWrite()
				w.within(tun.Done(), 5*time.Minute, 6*time.Minute)
				a.take(wire.CloseRequest)
				w.closed(a, 2, 0)
			})
		})
	}
}

func TestHalfCloseThatWasNotAgreed(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, c := w.established(a, 1, 1<<20, func(r *Request) { r.CanHalfClose = false })
		a.packet(wire.Packet{Type: wire.HalfClose, ConnectionID: 1})
		w.over(tun)
		if c.told().Reason != wire.ReasonProtocolError {
			t.Errorf("the client was told %+v", c.told())
		}
		a.take(wire.CloseRequest)
		w.closed(a, 1, 0)
	})
}

func TestDataBehindAHalfClose(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, c := w.established(a, 1, 1<<20)
		a.packet(wire.Packet{Type: wire.HalfClose, ConnectionID: 1})
		w.data(a, 1, "and another thing")
		w.over(tun)
		if c.told().Reason != wire.ReasonProtocolError || c.data() != "" {
			t.Errorf("the client was told %+v", c.told())
		}
		a.take(wire.CloseRequest)
		w.closed(a, 1, 0)
	})
}

// A half-closed tunnel whose client does not even take the end marker.
func TestCloseWriteCanBlock(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, c := w.established(a, 1, 1<<20)
		c.gate(true)
		a.packet(wire.Packet{Type: wire.HalfClose, ConnectionID: 1})
		synctest.Wait()
		tun.Abort(wire.ReasonAborted, "")
		w.over(tun)
		a.take(wire.CloseRequest)
		w.closed(a, 1, 0)
	})
}
