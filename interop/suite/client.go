package suite

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	public "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"

	"github.com/culvert-proxy/culvert/tunnel/client"
)

// dialer opens one connection through the tunnel.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// who is a kind of client.
type who struct {
	name string
	mode string // of the server: grpc or http-connect
	tcp  bool   // over TCP with mutual TLS, not over a Unix socket
	// variant: another one differs from it only on the way to the server, so it is
	// not run with each kind of peer behind that.
	variant bool
	// lossy: it may lose the first bytes of an endpoint that speaks first.
	lossy bool
	// closesLate: its close is not seen while the endpoint takes nothing. The
	// library cannot close while one of its writes is stuck; over TCP, the end of
	// a connection is behind the data that the server has no room for.
	closesLate bool
	// open returns how to dial; what it holds open ends with the test.
	open func(s *stage) dialer
}

// Reusable makes a reusable tunnel of the library, in versions that have one.
type Reusable func(ctx context.Context, address string, options ...grpc.DialOption) (ReusableTunnel, error)

// ReusableTunnel is the library's type of that name.
type ReusableTunnel interface {
	public.Tunnel
	Close() error
}

// publics are the library's ways to dial. version names it.
func publics(version string, reusable Reusable) []who {
	all := []who{
		{name: "public " + version, mode: "grpc", lossy: true, closesLate: true, open: kubeAPIServer},
		{name: "public " + version + " mTLS", mode: "grpc", tcp: true, variant: true, lossy: true, closesLate: true, open: publicTLS},
	}
	if reusable == nil {
		return all
	}
	open := func(s *stage) dialer {
		tunnel, err := reusable(context.Background(), s.target(), s.options()...)
		if err != nil {
			s.Fatal(err)
		}
		s.Cleanup(func() { tunnel.Close() })
		return tunnel.DialContext
	}
	return append(all,
		who{name: "public " + version + " reusable", mode: "grpc", variant: true, lossy: true, closesLate: true, open: open},
		who{name: "public " + version + " reusable mTLS", mode: "grpc", tcp: true, variant: true, lossy: true, closesLate: true, open: open})
}

// others are the clients that do not depend on the library.
func others() []who {
	single := func(s *stage) dialer {
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			tunnel, err := client.NewSingleUse(ctx, s.target(), client.Options{}, s.options()...)
			if err != nil {
				return nil, err
			}
			return tunnel.DialContext(ctx, network, address)
		}
	}
	reusable := func(s *stage) dialer {
		tunnel, err := client.NewReusable(s.target(), client.Options{}, s.options()...)
		if err != nil {
			s.Fatal(err)
		}
		s.Cleanup(func() { tunnel.Close() })
		return tunnel.DialContext
	}
	return []who{
		{name: "ours", mode: "grpc", open: single},
		{name: "ours mTLS", mode: "grpc", tcp: true, variant: true, open: single},
		{name: "ours reusable", mode: "grpc", variant: true, open: reusable},
		{name: "ours reusable mTLS", mode: "grpc", tcp: true, variant: true, open: reusable},
		{name: "CONNECT", mode: "http-connect", open: kubeConnect},
		{name: "CONNECT mTLS", mode: "http-connect", tcp: true, variant: true, closesLate: true, open: kubeConnect},
	}
}

// target is the frontend as gRPC is told it.
func (s *stage) target() string {
	if s.server.TCP {
		return s.server.Frontend
	}
	return "unix://" + s.server.Frontend
}

// options are the credentials for it.
func (s *stage) options() []grpc.DialOption {
	if s.server.TCP {
		return []grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(s.tls()))}
	}
	return []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
}

// kubeAPIServer dials as kube-apiserver does for GRPC over a Unix socket, option
// for option (COMPAT 10.2): a tunnel per connection, the path as the target, so
// that the percent-encoded path is the authority.
func kubeAPIServer(s *stage) dialer {
	path := s.server.Frontend
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		unix := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		})
		//nolint:staticcheck // what kube-apiserver calls, deprecated or not
		tunnel, err := public.CreateSingleUseGrpcTunnel(context.Background(), path, unix,
			grpc.WithBlock(), grpc.WithReturnConnectionError(), grpc.WithTimeout(30*time.Second),
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		return tunnel.DialContext(ctx, network, address)
	}
}

// publicTLS dials with a tunnel per connection over TCP and mutual TLS.
func publicTLS(s *stage) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		tunnel, err := public.CreateSingleUseGrpcTunnelWithContext(ctx, context.Background(), s.target(), s.options()...)
		if err != nil {
			return nil, err
		}
		return tunnel.DialContext(ctx, network, address)
	}
}
