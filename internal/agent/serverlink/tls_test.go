package serverlink

import (
	"context"
	"net"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/culvert-proxy/culvert/internal/agent/endpoint"
	"github.com/culvert-proxy/culvert/internal/certs"
	"github.com/culvert-proxy/culvert/internal/transport"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// TestRealTLS: with the credentials and sockets of the real agent. The name in
// the certificate is the host's, whatever address is dialled.
func TestRealTLS(t *testing.T) {
	others := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, others) })
	ca, err := certs.New(t.TempDir(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	serverPair, err := ca.Server("server", "server.example")
	if err != nil {
		t.Fatal(err)
	}
	agentPair, err := ca.Client("agent")
	if err != nil {
		t.Fatal(err)
	}
	serverTLS, err := transport.NewServerTLS(transport.ServerTLSConfig{
		CertFile: serverPair.Cert, KeyFile: serverPair.Key, ClientCAFile: ca.CA(), Protocol: transport.ProtocolHTTP2,
	})
	if err != nil {
		t.Fatal(err)
	}
	agentTLS, err := transport.NewClientTLS(transport.ClientTLSConfig{CAFile: ca.CA(), CertFile: agentPair.Cert, KeyFile: agentPair.Key})
	if err != nil {
		t.Fatal(err)
	}
	l, err := transport.ListenTCP(t.Context(), "127.0.0.1:0", transport.TCPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	server := tunneltest.Serve(t, l, grpc.Creds(serverTLS.Credentials()))
	conn := New(Config{
		AgentID: "a", Extensions: wire.AllExtensions, Instance: "i",
		Credentials: agentTLS.Credentials(),
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			return transport.DialTCP(ctx, address, transport.TCPOptions{})
		},
		Keepalive: transport.ServerKeepalive(0),
	}, endpoint.New(endpoint.Config{}, endpoint.NewNetDialer(endpoint.NetDialerConfig{}), nil), nil)

	done := make(chan *Link, 1)
	go func() {
		link, err := conn.Connect(t.Context(), Target{Host: "server.example", Address: l.Addr().String()})
		if err != nil {
			t.Error(err)
		}
		done <- link
	}()
	peer := server.AcceptAgent(newServer())
	link := <-done
	if link == nil {
		t.Fatal("no link")
	}
	if authority := peer.Headers.Get(":authority"); len(authority) != 1 || authority[0] != "server.example" {
		t.Errorf("authority %q", authority)
	}
	if link.RemoteAddr().String() != l.Addr().String() {
		t.Errorf("remote address %v", link.RemoteAddr())
	}
	link.Drop()

	_, err = conn.Connect(t.Context(), Target{Host: "other.example", Address: l.Addr().String()})
	if err == nil || !strings.Contains(err.Error(), "other.example") || !strings.Contains(err.Error(), "TLS handshake") {
		t.Errorf("a server with another name: %v", err)
	}
}
