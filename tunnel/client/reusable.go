package client

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Reusable is a tunnel for many dials: one gRPC connection, which is made when
// the first dial needs it and again when it was lost, and a stream for each.
type Reusable struct {
	// Fixed after construction.
	opts   Options
	target string
	cc     *grpc.ClientConn
	ctx    context.Context // ends with the tunnel
	cancel context.CancelFunc
	done   chan struct{}

	// Guarded by mu.
	mu     sync.Mutex
	closed bool
	users  sync.WaitGroup     // dials, and connections that are not done; joined under mu
	conns  map[*Conn]struct{} // those not done
}

var _ Tunnel = (*Reusable)(nil)

// NewReusable returns a tunnel to a server's frontend; see the package's targets
// (in target.go) for the forms of target. It does not connect yet, so an error
// means that the options contradict each other. The tunnel must be closed.
func NewReusable(target string, opts Options, dialOptions ...grpc.DialOption) (*Reusable, error) {
	cc, err := connect(target, dialOptions)
	if err != nil {
		return nil, dialError(wire.ReasonStreamSetup, target, err)
	}
	t := &Reusable{
		opts:   opts.withDefaults(),
		target: target,
		cc:     cc,
		done:   make(chan struct{}),
		conns:  map[*Conn]struct{}{},
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t, nil
}

// DialContext implements Tunnel. Its failures leave the tunnel as it is.
func (t *Reusable) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := t.dial(ctx, network, address)
	if err != nil {
		t.opts.Observer.DialFailed(err)
		return nil, err
	}
	return c, nil
}

func (t *Reusable) dial(ctx context.Context, network, address string) (*Conn, *wire.DialError) {
	if err := checkNetwork(network, address); err != nil {
		return nil, err
	}
	if !t.enter() {
		return nil, t.closedError(address)
	}
	defer t.users.Done()
	ctx, stop := t.opts.withBackstop(ctx)
	defer stop()
	c, err := t.open(ctx, address)
	if err != nil {
		return nil, err
	}
	return c, c.dial(ctx, network, address)
}

// open opens a stream; the end of the tunnel ends that too.
func (t *Reusable) open(ctx context.Context, address string) (*Conn, *wire.DialError) {
	ctx, cancelOpen := context.WithCancel(ctx)
	defer cancelOpen()
	defer context.AfterFunc(t.ctx, cancelOpen)() //nolint:contextcheck // two contexts end it
	stream, cancel, err := openStream(ctx, t.cc, t.opts, address)
	if t.ctx.Err() != nil && err != nil {
		return nil, t.closedError(address)
	}
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var c *Conn
	t.users.Add(1) // the caller has entered, so the group is not at zero
	c = newConn(t.opts, stream, cancel, func() { t.leave(c) })
	t.conns[c] = struct{}{}
	if t.closed {
		c.shut()
	}
	return c, nil
}

// enter lets a dial in, unless the tunnel is closed.
func (t *Reusable) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.users.Add(1)
	return true
}

// leave is called when nothing of c is left.
func (t *Reusable) leave(c *Conn) {
	t.mu.Lock()
	delete(t.conns, c)
	t.mu.Unlock()
	t.users.Done()
}

func (t *Reusable) closedError(address string) *wire.DialError {
	return dialError(wire.ReasonTunnelClosed, address, net.ErrClosed)
}

// Done implements Tunnel.
func (t *Reusable) Done() <-chan struct{} { return t.done }

// Close implements Tunnel.
func (t *Reusable) Close() error {
	t.mu.Lock()
	first := !t.closed
	t.closed = true
	for c := range t.conns {
		c.shut()
	}
	t.mu.Unlock()
	if first {
		t.cancel()
		t.users.Wait()
		t.cc.Close()
		close(t.done)
	}
	<-t.done
	return nil
}
