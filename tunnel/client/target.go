package client

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Targets. A target names a server's frontend in one of these forms:
//
//	host:port            TCP; WithTLS is what a server expects there
//	unix:///run/x.sock   a Unix socket
//	/run/x.sock          the same, as kube-apiserver does it: the path, percent
//	                     encoded, is the request's authority; the caller's own
//	                     grpc.WithContextDialer, if there is one, gets the path
//	scheme:///...        what gRPC has a resolver for
//
// Over Unix sockets credentials default to none; over TCP they must be given.
// The caller's dial options come after the ones chosen here, so they win.

// WithTLS makes a tunnel use TLS, with a client certificate if config holds one.
func WithTLS(config *tls.Config) grpc.DialOption {
	return grpc.WithTransportCredentials(credentials.NewTLS(config))
}

const (
	// streamWindow is the HTTP/2 window of a stream, in bytes: what the server
	// may send beyond what the connection's own queue holds.
	streamWindow = 256 << 10
	// connWindow is that of a gRPC connection. gRPC gives it back as data
	// arrives, so that a stuck reader takes nothing from its neighbours.
	connWindow = 1 << 20
	// Buffers are small because a single-use tunnel has a pair of its own.
	readBuffer  = 4 << 10
	writeBuffer = 16 << 10
)

// connect prepares a gRPC connection. It does not block: the connection is made
// when a stream needs it.
func connect(target string, dialOptions []grpc.DialOption) (*grpc.ClientConn, error) {
	options := []grpc.DialOption{
		grpc.WithInitialWindowSize(streamWindow),
		grpc.WithInitialConnWindowSize(connWindow),
		grpc.WithReadBufferSize(readBuffer),
		grpc.WithWriteBufferSize(writeBuffer),
		grpc.WithSharedWriteBuffer(true), //nolint:staticcheck // the default only in newer versions
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{
			// A server that restarts is back soon, and a dial fails while gRPC
			// waits to try again.
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 20 * time.Second,
		}),
	}
	path := strings.HasPrefix(target, "/")
	if path {
		options = append(options, grpc.WithContextDialer(dialPath))
	}
	if path || strings.HasPrefix(target, "unix:") {
		options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
	if !strings.Contains(target, "://") && !strings.HasPrefix(target, "unix:") {
		// Names are left to net.Dialer, which tries all their addresses.
		target = "passthrough:///" + target
	}
	return grpc.NewClient(target, append(options, dialOptions...)...)
}

// dialPath connects to the Unix socket of that path.
func dialPath(ctx context.Context, path string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", path)
}
