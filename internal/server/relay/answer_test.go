package relay

import (
	"testing"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// TestAnswerThatTheClientDoesNotTake: the agent has dialled, but the client
// cannot be told; it is counted, and the agent's connection is closed.
func TestAnswerThatTheClientDoesNotTake(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, c := w.open()
		c.vanish()
		w.accept(a, 3, 1<<20)
		if tun.WaitEstablished() == nil {
			t.Error("WaitEstablished: no error")
		}
		a.take(wire.CloseRequest)
		w.closed(a, 3, wire.ReasonNone)
		w.over(tun)
		if w.obs.lost != 1 || w.obs.opened != 1 || w.obs.closed != 1 {
			t.Errorf("answers lost %d, tunnels opened %d and closed %d, want 1 of each", w.obs.lost, w.obs.opened, w.obs.closed)
		}
	})
}
