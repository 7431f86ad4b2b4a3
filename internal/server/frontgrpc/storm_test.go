package frontgrpc

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Clients that leave in any way within 10 ms, while an agent that takes its time
// answers some of their dials. Nothing is left; the bubble would not end
// otherwise, and the world looks at the relay.
func TestClientsThatLeave(t *testing.T) {
	const clients, together = 600, 60
	bubble(t, func(t *testing.T, w *world) {
		a, endAgent := w.stream("agent", "agents", tunneltest.ConnectMethod, link.AgentHello{AgentID: "a"}.Metadata())
		defer endAgent()
		synctest.Wait()
		open := map[wire.ConnectionID]bool{}
		go answer(a, open)
		var wg sync.WaitGroup
		work := make(chan int)
		for range together {
			wg.Go(func() {
				for i := range work {
					leave(w, i)
				}
			})
		}
		for i := range clients {
			work <- i
		}
		close(work)
		wg.Wait()
		pass(5 * time.Second)
		synctest.Wait()
		if w.obs.streams() != 0 || w.relay.Tunnels() != 0 || w.relay.Pending() != 0 {
			t.Errorf("%d streams, %d tunnels, %d dials are left", w.obs.streams(), w.relay.Tunnels(), w.relay.Pending())
		}
		endAgent()
		synctest.Wait()
		if len(open) != 0 {
			t.Errorf("%d connections of the agent were never closed", len(open))
		}
	})
}

// leave is one client.
func leave(w *world, i int) {
	r := rand.New(rand.NewPCG(uint64(i), 1))
	c, end := w.stream("client", "front", tunneltest.ProxyMethod, link.ExtensionsMetadata([]wire.Extensions{0, wire.ExtReason}[i%2]))
	defer end()
	k := dial(wire.DialID(i + 1))
	_ = c.SendMsg(&k)
	pass(time.Duration(r.IntN(10_000)) * time.Microsecond)
	switch r.IntN(4) {
	case 0:
		_ = c.SendMsg(&wire.Packet{Type: wire.DialClose, DialID: wire.DialID(i + 1)})
		pass(time.Millisecond)
	case 1:
		_ = c.CloseSend()
		pass(time.Millisecond)
	case 2:
		k := data(1, "x")
		_ = c.SendMsg(&k)
	}
}

// answer is an agent that takes up to 5 ms for a dial. open is what it has open.
func answer(a grpc.ClientStream, open map[wire.ConnectionID]bool) {
	last := wire.ConnectionID(0)
	for {
		var k wire.Packet
		if a.RecvMsg(&k) != nil {
			return
		}
		switch k.Type {
		case wire.DialRequest:
			last++
			open[last] = true
			pass(time.Duration(last%5) * time.Millisecond)
			_ = a.SendMsg(&wire.Packet{Type: wire.DialResponse, DialID: k.DialID, ConnectionID: last})
		case wire.CloseRequest:
			delete(open, k.ConnectionID)
			_ = a.SendMsg(&wire.Packet{Type: wire.CloseResponse, ConnectionID: k.ConnectionID})
		}
	}
}
