package server

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

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
	net := tunneltest.NewNetwork(0)
	s, err := New(Config{
		ServerID:                "s1",
		Mode:                    ModeGRPC,
		ServerCount:             1,
		Strategies:              []backend.Strategy{backend.Default},
		FlowBudget:              1 << 30,
		GracefulShutdownTimeout: patience,
	}, Deps{
		Logger:           klog.Background(),
		FrontendListener: net.Listen("frontend"),
		AgentListener:    net.Listen("agents"),
		NoPorts:          true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()

	agent := tunneltest.Connect(t, net.Dial, "agents", link.AgentHello{AgentID: "a", Instance: "i", Slot: "0", Extensions: wire.AllExtensions})
	agent.Send(wire.Packet{Type: wire.Ready})
	synctest.Wait()
	clients := make([]*tunneltest.ClientPeer, 20)
	for i := range clients {
		id := wire.ConnectionID(i + 1)
		c := tunneltest.Proxy(t, net.Dial, "frontend", link.ClientExtensions)
		c.Send(wire.Packet{Type: wire.DialRequest, DialID: 5, Protocol: "tcp", Address: "endpoint:80"})
		dial := agent.ExpectDial("endpoint:80")
		agent.Send(wire.Packet{Type: wire.DialResponse, DialID: dial.DialID, ConnectionID: id})
		c.ExpectOn(wire.DialResponse, id)
		clients[i] = c
	}
	stop()
	for i, c := range clients {
		if got := c.ExpectOn(wire.CloseResponse, wire.ConnectionID(i+1)); got.Reason != wire.ReasonShutdown {
			t.Errorf("client %d was told %v", i, got.Reason)
		}
		if err := c.ExpectEnd(); !errors.Is(err, io.EOF) {
			t.Errorf("client %d: the stream ended with %v", i, err)
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
