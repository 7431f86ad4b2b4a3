package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"

	"github.com/culvert-proxy/culvert/internal/server/backend"
	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// A stopping server's clients hear why their tunnels end, and that is the end of
// their streams in order: it does not cut the connection under its own words.
func TestStopTellsClients(t *testing.T) {
	for _, patience := range []time.Duration{0, 10 * time.Second} {
		t.Run(patience.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { stopTellsClients(t, patience) })
		})
	}
}

func stopTellsClients(t *testing.T, patience time.Duration) {
	r := run(t, patience)
	clients := make([]*tunneltest.ClientPeer, 20)
	for i := range clients {
		clients[i] = r.tunnel(wire.ConnectionID(i + 1))
	}
	r.stop()
	for i, c := range clients {
		if got := c.ExpectOn(wire.CloseResponse, wire.ConnectionID(i+1)); got.Reason != wire.ReasonShutdown {
			t.Errorf("client %d was told %v", i, got.Reason)
		}
		if err := c.ExpectEnd(); !errors.Is(err, io.EOF) {
			t.Errorf("client %d: the stream ended with %v", i, err)
		}
	}
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
}

// A tunnel is over in relay when its last bytes are in gRPC's hands; a graceful
// stop waits until a slow client has them.
func TestStopWaitsForSlowReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, 30*time.Second)
		c := r.tunnel(1)
		c.SetReading(false)
		want := bytes.Repeat([]byte("0123456789abcdef"), 6<<10) // more than the client's window
		r.agent.SendData(1, want)
		r.agent.Send(wire.Packet{Type: wire.CloseResponse, ConnectionID: 1})
		synctest.Wait()
		if n := r.server.relay.Tunnels(); n != 0 {
			t.Fatalf("%d tunnels; gRPC takes less than it did", n)
		}
		r.stop()
		<-time.After(20 * time.Second)
		select {
		case <-r.ended:
			t.Fatal("the server did not wait")
		default:
		}
		c.SetReading(true)
		c.ExpectData(1, want)
		c.ExpectOn(wire.CloseResponse, 1)
		if err := c.ExpectEnd(); !errors.Is(err, io.EOF) {
			t.Errorf("the stream ended with %v", err)
		}
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
	})
}

// running is a server with a gRPC frontend on an in-memory network, and an agent.
type running struct {
	t      *testing.T
	net    *tunneltest.Network
	server *Server
	agent  *tunneltest.AgentPeer
	stop   context.CancelFunc
	ended  chan error
}

func run(t *testing.T, patience time.Duration) *running {
	t.Helper()
	r := &running{t: t, net: tunneltest.NewNetwork(0), ended: make(chan error, 1)}
	var err error
	r.server, err = New(Config{
		ServerID:                "s1",
		Mode:                    ModeGRPC,
		ServerCount:             1,
		Strategies:              []backend.Strategy{backend.Default},
		FlowBudget:              1 << 30,
		GracefulShutdownTimeout: patience,
	}, Deps{
		Logger:           klog.Background(),
		FrontendListener: r.net.Listen("frontend"),
		AgentListener:    r.net.Listen("agents"),
		NoPorts:          true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() { r.ended <- r.server.Run(ctx) }()
	r.agent = tunneltest.Connect(t, r.net.Dial, "agents", link.AgentHello{AgentID: "a", Instance: "i", Slot: "0", Extensions: wire.AllExtensions})
	r.agent.Send(wire.Packet{Type: wire.Ready})
	synctest.Wait()
	return r
}

// tunnel opens one.
func (r *running) tunnel(id wire.ConnectionID) *tunneltest.ClientPeer {
	r.t.Helper()
	// A window of its own keeps gRPC from making it larger.
	c := tunneltest.Proxy(r.t, r.net.Dial, "frontend", link.ClientExtensions, grpc.WithInitialWindowSize(64<<10))
	c.Send(wire.Packet{Type: wire.DialRequest, DialID: 5, Protocol: "tcp", Address: "endpoint:80"})
	dial := r.agent.ExpectDial("endpoint:80")
	r.agent.Send(wire.Packet{Type: wire.DialResponse, DialID: dial.DialID, ConnectionID: id})
	c.ExpectOn(wire.DialResponse, id)
	return c
}
