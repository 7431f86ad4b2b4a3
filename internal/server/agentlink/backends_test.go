package agentlink

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

func TestNewAgentJoinsWhenReady(t *testing.T) {
	bubble(t, all(), func(t *testing.T, w *world) {
		a := w.connect("agent", newAgent("a", "i", "0"))
		pass(time.Hour)
		w.wantBackends()
		a.Send(wire.Packet{Type: wire.Ready}, wire.Packet{Type: wire.Ready})
		w.wantBackends("a/i/0")
		a.Close()
		w.wantBackends()
		if w.joins != 1 {
			t.Errorf("joined %d times", w.joins)
		}
	})
}

func TestOldAgentsSecondLinkWaits(t *testing.T) {
	bubble(t, all(), func(t *testing.T, w *world) {
		first := w.connect("one", oldAgent("a"))
		w.wantBackends("a//")
		// A probe: dropped at once, as old agents do. It never becomes a backend.
		w.connect("one", oldAgent("a")).Close()
		pass(time.Second)
		if w.joins != 1 || len(w.obs.duplicates) != 0 {
			t.Errorf("%d joins, duplicates %q", w.joins, w.obs.duplicates)
		}
		// Another process, or the same that has reconnected.
		w.connect("two", oldAgent("a"))
		pass(DefaultJoinDelay - 1)
		w.wantBackends("a//")
		pass(1)
		w.wantBackends("a//", "a//")
		if !slices.Equal(w.obs.duplicates, []string{"a"}) {
			t.Errorf("duplicates %q", w.obs.duplicates)
		}
		w.connect("three", oldAgent("b"))
		w.wantBackends("a//", "a//", "b//")
		first.Close()
		w.wantBackends("a//", "b//")
	})
}

func TestReconnectedAgentReplacesItsLink(t *testing.T) {
	bubble(t, all(), func(t *testing.T, w *world) {
		old := w.readyAgent("agent", newAgent("a", "i", "0"))
		other := w.readyAgent("agent", newAgent("a", "i", "1"))
		_, gone := w.open(other, 7) // the newest backend is picked
		_, dead := w.dialVia(old)
		// The old link hangs: nothing gets through, not even its end.
		w.net.ShapeBoth("agent", "server", tunneltest.Shape{Stall: true})
		next := w.connect("elsewhere", newAgent("a", "i", "0"))
		w.wantBackends("a/i/0", "a/i/1")
		next.Send(wire.Packet{Type: wire.Ready})
		w.wantBackends("a/i/1", "a/i/0")
		pass(time.Second)
		if n := w.links.Links(); n != 2 {
			t.Errorf("%d links a second after, want the new one and the other slot's", n)
		}
		if end := dead.over(); end == nil || end.Reason != wire.ReasonLinkLost {
			t.Errorf("the old link's tunnel ended with %v", end)
		}
		if end := gone.over(); end != nil {
			t.Errorf("the other slot's tunnel ended with %v", end)
		}
		if w.obs.replaced != 1 || len(w.obs.duplicates) != 0 {
			t.Errorf("%d replaced, duplicates %q", w.obs.replaced, w.obs.duplicates)
		}
		w.net.ShapeBoth("agent", "server", tunneltest.Shape{})
		if err := old.ExpectEnd(); status.Code(err) != codes.Unavailable {
			t.Errorf("the old link ended with %v", err)
		}
	})
}

func TestTwoProcessesWithOneAgentID(t *testing.T) {
	bubble(t, all(), func(t *testing.T, w *world) {
		one := w.readyAgent("one", newAgent("a", "i", "0"))
		two := w.readyAgent("two", newAgent("a", "j", "0"))
		w.wantBackends("a/i/0", "a/j/0")
		if !slices.Equal(w.obs.duplicates, []string{"a"}) {
			t.Errorf("duplicates %q", w.obs.duplicates)
		}
		// The same connection ID on both: they are different tunnels.
		_, c2 := w.open(two, 1)
		two.Close()
		w.wantBackends("a/i/0")
		_, c1 := w.open(one, 1)
		one.SendData(1, []byte("mine"))
		if c1.got() != "mine" || c2.got() != "" || c2.over() == nil {
			t.Errorf("first %q, second %q, end %v", c1.got(), c2.got(), c2.over())
		}
	})
}

func TestDrain(t *testing.T) {
	bubble(t, all(), func(t *testing.T, w *world) {
		fresh := w.readyAgent("new", newAgent("a", "i", "0"))
		old := w.connect("old", oldAgent("b"))
		w.wantBackends("a/i/0", "b//")
		old.Send(wire.Packet{Type: wire.Drain})
		synctest.Wait()
		for _, s := range w.links.Statuses() {
			if s.Draining != (s.AgentID == "b") {
				t.Errorf("agent %s draining: %v", s.AgentID, s.Draining)
			}
		}
		w.wantBackends("a/i/0", "b//") // draining ones stay, as a last resort

		w.links.Drain()
		fresh.Expect(wire.Drain)
		synctest.Wait()
		old.ExpectNothing()
		p := tunneltest.TryConnect(t, w.net.Dialer("late"), "server", metadata.Pairs("agentid", "c"))
		if err := p.ExpectEnd(); status.Code(err) != codes.Unavailable {
			t.Errorf("a late agent was told %v", err)
		}
		if w.obs.refused[RefusedDraining] != 1 {
			t.Errorf("refusals %v", w.obs.refused)
		}
	})
}

// dialVia dials through a, whatever other backends there are.
func (w *world) dialVia(a *tunneltest.AgentPeer) (any, *client) {
	w.t.Helper()
	w.mu.Lock()
	slices.Reverse(w.backends)
	w.mu.Unlock()
	tun, c := w.open(a, 3)
	w.mu.Lock()
	slices.Reverse(w.backends)
	w.mu.Unlock()
	return tun, c
}
