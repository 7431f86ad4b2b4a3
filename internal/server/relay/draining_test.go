package relay

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// A dial that waits for an agent which begins to drain goes to another one.
func TestDialLeavesADrainingAgent(t *testing.T) {
	for _, ext := range []wire.Extensions{newAgent, 0} {
		inWorld(t, Config{BackendDialTimeout: 7 * time.Second}, func(w *world) {
			a, b := w.attach(ext), w.attach(newAgent)
			tun, _ := w.open()
			id := a.take(wire.DialRequest).DialID
			a.packet(wire.Packet{Type: wire.Drain})
			if pk := a.take(wire.DialClose); pk.DialID != id {
				t.Errorf("DIAL_CLS for %d, want %d", pk.DialID, id)
			}
			w.accept(b, 1, 0)
			if tun.WaitEstablished() != nil || tun.Peer() != b.peer {
				t.Fatal("not established on the other agent")
			}
			if a.peer.Suspect() {
				t.Error("an agent that says that it leaves is suspect")
			}
			if n := w.obs.attempts; len(n) != 1 || n[0].Final || n[0].Err.Reason != wire.ReasonShutdown {
				t.Errorf("attempts %+v", n)
			}
			// It had dialled already: nobody wants its connection.
			a.packet(wire.Packet{Type: wire.DialResponse, DialID: id, ConnectionID: 9})
			if pk := a.take(wire.CloseRequest); pk.ConnectionID != 9 {
				t.Errorf("CLOSE_REQ for %d", pk.ConnectionID)
			}
			w.closed(a, 9, 0)
			w.closeNow(tun, b)
		})
	}
}

// A draining agent is waited for while it is the best there is: it is alone, the
// others are no better, or another attempt is not allowed.
func TestDialStaysWithTheBestAgentThoughItDrains(t *testing.T) {
	for name, c := range map[string]struct {
		attempts int
		others   func(w *world) // attached before the dial
		tried    bool           // one of them is asked first
	}{
		"alone":       {3, func(*world) {}, false},
		"all drain":   {3, func(w *world) { w.attach(newAgent).peer.Drain() }, false},
		"suspect":     {3, func(w *world) { w.attach(newAgent).peer.suspect.Store(true) }, false},
		"no attempts": {1, func(*world) {}, false},
		"tried":       {3, func(w *world) { w.attach(newAgent) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Config{DialAttempts: c.attempts}, func(w *world) {
				c.others(w)
				a := w.attach(newAgent)
				if name == "no attempts" {
					w.attach(newAgent)
				}
				tun, _ := w.open()
				if c.tried {
					w.fail(w.agents[0], wire.ReasonUnreachable, "no route to host")
				}
				id := a.take(wire.DialRequest).DialID
				a.packet(wire.Packet{Type: wire.Drain})
				a.packet(wire.Packet{Type: wire.Drain}) // again, which is no news
				synctest.Wait()
				a.nothing()
				a.packet(wire.Packet{Type: wire.DialResponse, DialID: id, ConnectionID: 1})
				synctest.Wait()
				if !tun.Established() || tun.Peer() != a.peer {
					t.Fatal("not established on the draining agent")
				}
				w.closeNow(tun, a)
			})
		})
	}
}
