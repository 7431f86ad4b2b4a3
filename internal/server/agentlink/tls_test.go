package agentlink

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"

	"github.com/culvert-proxy/culvert/internal/certs"
	"github.com/culvert-proxy/culvert/internal/server/relay"
	"github.com/culvert-proxy/culvert/internal/transport"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// The whole stack over loopback TCP with mutual TLS: the agent's certificate
// reaches the Authenticator, and a replaced link's own connection is closed.
func TestOverTLS(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	dir := t.TempDir()
	ca, err := certs.New(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	server, err1 := ca.Server("server", "127.0.0.1")
	client, err2 := ca.Client("agent-7")
	serverTLS, err3 := transport.NewServerTLS(transport.ServerTLSConfig{CertFile: server.Cert, KeyFile: server.Key, ClientCAFile: ca.CA(), Protocol: transport.ProtocolHTTP2})
	clientTLS, err4 := transport.NewClientTLS(transport.ClientTLSConfig{CAFile: ca.CA(), CertFile: client.Cert, KeyFile: client.Key, ServerName: "127.0.0.1"})
	l, err5 := transport.ListenTCP(t.Context(), "127.0.0.1:0", transport.TCPOptions{})
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		t.Fatal(err)
	}

	w := &world{t: t, obs: newCounts(), count: 1, ids: map[*relay.Peer]wire.Identifiers{}}
	names := make(chan string, 2)
	w.auth = func(c Candidate) error { names <- c.Certificates[0].Subject.CommonName; return nil }
	w.relay = relay.New(relay.Config{}, w, nil)
	w.links = New(Config{ServerID: "s1", Extensions: wire.AllExtensions, Logger: klog.Background()}, func() int { return 1 }, w.relay, w, w, w.obs)
	g := grpc.NewServer(append(ServerOptions(transport.AgentKeepalive(0)), grpc.Creds(serverTLS.Credentials()))...)
	w.links.Register(g)
	go g.Serve(l)
	defer g.Stop()

	dial := func(ctx context.Context, address string) (net.Conn, error) {
		return transport.DialTCP(ctx, address, transport.TCPOptions{})
	}
	creds := grpc.WithTransportCredentials(clientTLS.Credentials())
	old := tunneltest.Connect(t, dial, l.Addr().String(), newAgent("a", "i", "0"), creds)
	defer old.Close()
	old.Send(wire.Packet{Type: wire.Ready})
	next := tunneltest.Connect(t, dial, l.Addr().String(), newAgent("a", "i", "0"), creds)
	defer next.Close()
	if got := []string{<-names, <-names}; !slices.Equal(got, []string{"agent-7", "agent-7"}) {
		t.Errorf("certificates of %q", got)
	}
	old.SetPongs(false)
	next.Send(wire.Packet{Type: wire.Ready})
	if err := old.ExpectEnd(); err == nil {
		t.Error("the old link has ended in order")
	}
	limit := time.After(10 * time.Second)
	for w.links.Links() != 1 {
		select {
		case <-limit:
			t.Fatal("the old link is still there")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Without the connection below TLS a frozen agent could not be dropped, so such
// a listener takes no agents.
func TestRawConnectionIsNeeded(t *testing.T) {
	w := &world{t: t, obs: newCounts(), ids: map[*relay.Peer]wire.Identifiers{}}
	w.relay = relay.New(relay.Config{}, w, nil)
	w.links = New(Config{Logger: klog.Background()}, func() int { return 1 }, w.relay, w, nil, nil)
	n := tunneltest.NewNetwork(0)
	g := grpc.NewServer(ServerOptions(transport.AgentKeepalive(0))...)
	w.links.Register(g)
	go g.Serve(n.Listen("server"))
	defer g.Stop()
	p := tunneltest.TryConnect(t, n.Dial, "server", oldAgent("a").Metadata())
	defer p.Close()
	if err := p.ExpectEnd(); err == nil || w.links.Links() != 0 {
		t.Errorf("%v, %d links", err, w.links.Links())
	}
}
