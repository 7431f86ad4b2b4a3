package client

import (
	"context"
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// SingleUse is a tunnel for one dial, with a gRPC connection of its own. It ends
// when its connection has, or when its dial fails.
type SingleUse struct {
	// Fixed after construction.
	opts Options
	conn *Conn
	done chan struct{}

	// Guarded by mu.
	mu   sync.Mutex
	used bool
}

var _ Tunnel = (*SingleUse)(nil)

// NewSingleUse connects to a server's frontend; see the package's targets (in
// target.go) for the forms of target. ctx bounds that and means nothing to the
// tunnel afterwards, but its values are those of the stream. An error is a
// *wire.DialError. A tunnel that is not dialled must be closed.
func NewSingleUse(ctx context.Context, target string, opts Options, dialOptions ...grpc.DialOption) (*SingleUse, error) {
	opts = opts.withDefaults()
	t, err := newSingleUse(ctx, target, opts, dialOptions)
	if err != nil {
		opts.Observer.DialFailed(err)
		return nil, err
	}
	return t, nil
}

func newSingleUse(ctx context.Context, target string, opts Options, dialOptions []grpc.DialOption) (*SingleUse, *wire.DialError) {
	cc, err := connect(target, dialOptions)
	if err != nil {
		return nil, dialError(wire.ReasonStreamSetup, target, err)
	}
	ctx, stop := opts.withBackstop(ctx)
	defer stop()
	stream, cancel, failure := openStream(ctx, cc, opts, target)
	if failure != nil {
		cc.Close()
		return nil, failure
	}
	t := &SingleUse{opts: opts, done: make(chan struct{})}
	t.conn = newConn(opts, stream, cancel, func() {
		cc.Close()
		close(t.done)
	})
	return t, nil
}

// DialContext implements Tunnel. It works once; any failure but that of a second
// call ends the tunnel.
func (t *SingleUse) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if err := t.dial(ctx, network, address); err != nil {
		t.opts.Observer.DialFailed(err)
		return nil, err
	}
	return t.conn, nil
}

func (t *SingleUse) dial(ctx context.Context, network, address string) *wire.DialError {
	t.mu.Lock()
	used := t.used
	t.used = true
	t.mu.Unlock()
	if used {
		return dialError(wire.ReasonAlreadyDialed, address, errors.New("a single-use tunnel was dialled already"))
	}
	if err := checkNetwork(network, address); err != nil {
		t.conn.shut()
		return err
	}
	ctx, stop := t.opts.withBackstop(ctx)
	defer stop()
	return t.conn.dial(ctx, network, address)
}

// Done implements Tunnel.
func (t *SingleUse) Done() <-chan struct{} { return t.done }

// Close implements Tunnel.
func (t *SingleUse) Close() error {
	t.conn.shut()
	<-t.done
	return nil
}
