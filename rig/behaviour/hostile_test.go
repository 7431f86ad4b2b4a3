package behaviour

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/culvert-proxy/culvert/rig/process"
	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// neighbour is a healthy tunnel beside a hostile peer: it pings an echo all the
// time.
type neighbour struct {
	c      tunnel
	pings  atomic.Int64
	quit   chan struct{}
	result chan error
}

func startNeighbour(t testing.TB, f *front, address string) *neighbour {
	t.Helper()
	n := &neighbour{c: f.mustDial(t, address), quit: make(chan struct{}), result: make(chan error, 1)}
	go func() {
		for {
			select {
			case <-n.quit:
				n.result <- closeWhole(n.c)
				return
			default:
			}
			if err := tryPing(n.c, hang); err != nil {
				n.result <- fmt.Errorf("ping %d: %w", n.pings.Load(), err)
				return
			}
			n.pings.Add(1)
		}
	}()
	return n
}

// unmoved waits for a whole ping that began after it was called.
func (n *neighbour) unmoved(t testing.TB) {
	t.Helper()
	before := n.pings.Load()
	process.Eventually(t, hang, "the neighbour's pings", func() bool {
		if len(n.result) > 0 {
			t.Fatalf("the neighbour noticed something: %v", <-n.result)
		}
		return n.pings.Load() > before+1
	})
}

// stop ends it in order.
func (n *neighbour) stop(t testing.TB) {
	t.Helper()
	close(n.quit)
	if err := <-n.result; err != nil {
		t.Errorf("the neighbour: %v", err)
	}
}

// peer is a scripted client on the frontend.
func (f *front) peer(t testing.TB, ext wire.Extensions) *tunneltest.ClientPeer {
	t.Helper()
	network, opts := "unix", []grpc.DialOption(nil)
	if f.tls != nil {
		network, opts = "tcp", append(opts, grpc.WithTransportCredentials(credentials.NewTLS(f.tls)))
	}
	dial := func(ctx context.Context, _ string) (net.Conn, error) { return dialBusy(ctx, network, f.address) }
	return tunneltest.Proxy(t, dial, "localhost", ext, opts...)
}

// agentPort is where a scripted agent connects, and with what.
func (s *stand) agentPort() (tunneltest.DialFunc, string, grpc.DialOption) {
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
	address := net.JoinHostPort(s.server.Host, strconv.Itoa(s.server.Agents))
	return dial, address, grpc.WithTransportCredentials(credentials.NewTLS(clientTLS(s.t, s.ground)))
}

// scriptedAgent connects an agent that is a script.
func (s *stand) scriptedAgent(t testing.TB, hello link.AgentHello) *tunneltest.AgentPeer {
	t.Helper()
	dial, address, creds := s.agentPort()
	return tunneltest.Connect(t, dial, address, hello, creds)
}

// alive fails the test if a process of the stand has ended.
func (s *stand) alive(t testing.TB) {
	t.Helper()
	processes := []*process.Process{s.server.Process}
	for _, a := range s.agents {
		processes = append(processes, a.Process)
	}
	for _, p := range processes {
		if ended(p) {
			t.Fatalf("%s has ended", p.Name)
		}
	}
}

// rawPacket is a packet of type typ that carries message body in field num.
func rawPacket(typ int64, num protowire.Number, body []byte) []byte {
	var b []byte
	if typ != 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), uint64(typ))
	}
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), body)
}

// rawDial is a DIAL_REQ with strings that the codec would not write.
func rawDial(protocol, address string, random int64) []byte {
	var b []byte
	b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), protocol)
	b = protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), address)
	b = protowire.AppendVarint(protowire.AppendTag(b, 3, protowire.VarintType), uint64(random))
	return rawPacket(0, 2, b)
}

// unknownPackets are packets of types that nobody knows.
func unknownPackets() [][]byte {
	var all [][]byte
	for _, typ := range []int64{7, 63, 70, 99, 1 << 20, 1<<31 - 1, -1} {
		all = append(all, rawPacket(typ, 99, []byte("what is this?")))
	}
	return all
}

// mismatchedPackets say one thing and carry another, or nothing, for each type.
// (An empty packet is a DIAL_REQ without its message.)
func mismatchedPackets(types ...wire.PacketType) [][]byte {
	connection := []byte{8, 1} // field 1 is 1: a connection ID or a dial ID in most messages
	var all [][]byte
	for _, typ := range types {
		other := protowire.Number(5) // a CLOSE_REQ's message
		if typ == wire.CloseRequest {
			other = 4 // a DATA's
		}
		all = append(all,
			protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(typ)),
			rawPacket(int64(typ), other, connection),
			rawPacket(int64(typ), 99, connection))
	}
	return all
}

// word is data for scripts.
const word = "are you there?"

func data(id wire.ConnectionID, text string) wire.Packet {
	return wire.Packet{Type: wire.Data, ConnectionID: id, Payload: wire.PayloadBytes([]byte(text))}
}

// gone waits until the endpoint has no live connection.
func gone(t testing.TB, e *endpoint) {
	t.Helper()
	process.Eventually(t, hang, "the endpoint's sockets are closed", func() bool { return e.live() == 0 })
}

// soon is a limit for scripts that wait for metrics.
const soon = 10 * time.Second
