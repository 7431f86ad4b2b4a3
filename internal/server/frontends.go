package server

import (
	"crypto/tls"
	"net"

	"google.golang.org/grpc"

	"github.com/culvert-proxy/culvert/internal/server/frontconnect"
	"github.com/culvert-proxy/culvert/internal/transport"
)

func tlsListener(l net.Listener, conf *transport.ServerTLS) net.Listener {
	return tls.NewListener(l, conf.Config())
}

// connectFrontend adapts HTTP CONNECT.
type connectFrontend struct{ *frontconnect.Server }

func (f *connectFrontend) serve(l net.Listener) error { return f.Serve(l) }
func (f *connectFrontend) stop()                      { f.Stop() }
func (f *connectFrontend) close()                     { f.Close() }

// grpcFrontend adapts gRPC.
type grpcFrontend struct{ rpc *grpc.Server }

func (f *grpcFrontend) serve(l net.Listener) error { return f.rpc.Serve(l) }

// stop closes the listener and tells clients by GOAWAY to open no new stream;
// GracefulStop itself waits for the streams, so it goes on beside us.
func (f *grpcFrontend) stop()  { go f.rpc.GracefulStop() }
func (f *grpcFrontend) close() { f.rpc.Stop() }
