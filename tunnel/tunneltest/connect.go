package tunneltest

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// The methods of the two services. COMPAT 1.1.
const (
	ProxyMethod   = "/ProxyService/Proxy"
	ConnectMethod = "/AgentService/Connect"
)

// DialFunc makes a connection to an address; Network.Dialer returns one.
type DialFunc func(ctx context.Context, address string) (net.Conn, error)

// AgentPeer is a scripted agent on a server.
type AgentPeer struct {
	*Peer
	Server link.ServerHello // what the server answered

	stream grpc.ClientStream
}

// CloseSend half-closes the stream: the agent leaves in order.
func (a *AgentPeer) CloseSend() { _ = a.stream.CloseSend() }

// Connect opens an agent's stream to a server with these headers and waits for
// the server's, which must be right. A hello without Extensions, Instance and
// Slot makes an old agent. Credentials are insecure unless opts say otherwise.
func Connect(t testing.TB, dial DialFunc, address string, hello link.AgentHello, opts ...grpc.DialOption) *AgentPeer {
	t.Helper()
	stream, cancel := open(t, dial, address, ConnectMethod, hello.Metadata(), opts)
	md, err := stream.Header()
	if err == nil && len(md.Get(wire.HeaderServerID)) == 0 {
		err = stream.RecvMsg(&wire.Packet{}) // trailers only: the refusal's status
	}
	if err != nil {
		t.Fatalf("agent %q: %v", hello.AgentID, err)
	}
	server, err := link.ParseServerHello(md, hello.Extensions)
	if err != nil {
		t.Fatalf("agent %q: %v", hello.AgentID, err)
	}
	return &AgentPeer{Peer: startPeer(t, stream, cancel), Server: server, stream: stream}
}

// TryConnect is Connect with any headers, for agents that are to be refused. It
// waits for nothing; the peer's ExpectEnd returns the refusal.
func TryConnect(t testing.TB, dial DialFunc, address string, headers metadata.MD, opts ...grpc.DialOption) *Peer {
	t.Helper()
	stream, cancel := open(t, dial, address, ConnectMethod, headers, opts)
	return startPeer(t, stream, cancel)
}

// ClientPeer is a scripted client on a server's gRPC frontend.
type ClientPeer struct {
	*Peer
	stream grpc.ClientStream
}

// Proxy opens a client's stream. Without extensions it is an old client, which
// lists none.
func Proxy(t testing.TB, dial DialFunc, address string, ext wire.Extensions, opts ...grpc.DialOption) *ClientPeer {
	t.Helper()
	stream, cancel := open(t, dial, address, ProxyMethod, link.ExtensionsMetadata(ext), opts)
	return &ClientPeer{Peer: startPeer(t, stream, cancel), stream: stream}
}

// Extensions waits for the server's headers and returns the extensions it lists.
// To an old client a server sends its headers with the first packet only.
func (c *ClientPeer) Extensions() wire.Extensions {
	c.t.Helper()
	md, err := c.stream.Header()
	if err != nil {
		c.t.Fatalf("waiting for headers: %v", err)
	}
	return link.Offered(md)
}

// CloseSend half-closes the stream, which a server takes for its loss (COMPAT 1.7).
func (c *ClientPeer) CloseSend() { _ = c.stream.CloseSend() }

// Stream is the stream itself, for a real link on top of it. Only sending on it
// makes sense, since the peer reads.
func (c *ClientPeer) Stream() grpc.ClientStream { return c.stream }

// open opens a stream on a gRPC connection of its own, which ends with it.
func open(t testing.TB, dial DialFunc, address, method string, headers metadata.MD, opts []grpc.DialOption) (grpc.ClientStream, context.CancelFunc) {
	t.Helper()
	all := append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dial),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{})),
		grpc.WithDisableServiceConfig(),
	}, opts...)
	conn, err := grpc.NewClient("passthrough:///"+address, all...)
	if err != nil {
		t.Fatalf("dialling %s: %v", address, err)
	}
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(context.Background(), headers))
	end := func() {
		cancel()
		conn.Close()
	}
	t.Cleanup(end)
	desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	stream, err := conn.NewStream(ctx, desc, method)
	if err != nil {
		t.Fatalf("opening %s on %s: %v", method, address, err)
	}
	return stream, end
}
