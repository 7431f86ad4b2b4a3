package server

import (
	"context"
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

// flush waits until every socket is closed: after the last byte a client has a
// moment to take it, since a process that ends resets what is not read.
func (f *connectFrontend) flush(ctx context.Context) {
	_ = f.Wait(ctx) // no longer than ctx, whoever is left
}

// grpcFrontend adapts gRPC.
type grpcFrontend struct {
	rpc     *grpc.Server
	stopped chan struct{} // closed when stop has come to its end
}

func newGRPCFrontend(rpc *grpc.Server) *grpcFrontend {
	return &grpcFrontend{rpc: rpc, stopped: make(chan struct{})}
}

func (f *grpcFrontend) serve(l net.Listener) error { return f.rpc.Serve(l) }

// stop closes the listener and tells clients by GOAWAY to open no new stream;
// GracefulStop itself waits for the streams, so it goes on beside us.
func (f *grpcFrontend) stop() {
	go func() {
		f.rpc.GracefulStop()
		close(f.stopped)
	}()
}

// flush waits until every connection is empty and closed: gRPC sends beside us,
// and what a client is told last may not have left yet when its tunnel has ended.
func (f *grpcFrontend) flush(ctx context.Context) {
	select {
	case <-f.stopped:
	case <-ctx.Done():
	}
}

func (f *grpcFrontend) close() { f.rpc.Stop() }
