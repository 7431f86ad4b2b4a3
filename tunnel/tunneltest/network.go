package tunneltest

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// DefaultBuffer is how many bytes a direction of a connection holds by default.
const DefaultBuffer = 64 << 10

// Shape is how one direction of a connection carries bytes. The zero Shape
// carries them at once.
type Shape struct {
	// Stall lets nothing arrive: not bytes, not the end, not a reset, not the
	// handshake of a Dial. What is sent waits, as far as the buffer goes.
	Stall bool
	// Latency is how long bytes travel.
	Latency time.Duration
	// Rate is in bytes per second; 0 is unlimited. A direction with much latency
	// also needs a buffer of Latency x Rate to reach it.
	Rate int64
}

// Network carries connections between names in memory. A listener's name is
// what it listens on, a dialling side's what it gives to Dialer. Safe for
// concurrent use.
type Network struct {
	mu        sync.Mutex
	buffer    int
	listeners map[string]*Listener // nil value: has listened once
	shapes    map[[2]string]Shape  // from, to; "" is anyone
	pairs     map[*pair]struct{}   // those not over
	dialled   int
	changed   broadcast
}

// NewNetwork returns a network without faults. buffer is how many bytes each
// direction of a connection holds, DefaultBuffer if 0.
func NewNetwork(buffer int) *Network {
	if buffer <= 0 {
		buffer = DefaultBuffer
	}
	return &Network{
		buffer:    buffer,
		listeners: map[string]*Listener{},
		shapes:    map[[2]string]Shape{},
		pairs:     map[*pair]struct{}{},
	}
}

// Listen takes a name, which may look like host:port or not. It panics if the
// name is taken, which is a mistake of the test.
func (n *Network) Listen(name string) *Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[name] != nil {
		panic(fmt.Sprintf("tunneltest: %s is listened on already", name))
	}
	l := &Listener{net: n, name: name}
	n.listeners[name] = l
	return l
}

// Dial connects to a listener as "client". See Dialer.
func (n *Network) Dial(ctx context.Context, name string) (net.Conn, error) {
	return n.dial(ctx, "client", name)
}

// Dialer returns a dial function for the side called from; its connections are
// *Conn. It fits grpc.WithContextDialer. A name that nobody has ever listened
// on is unknown (*net.DNSError); one whose listener is closed or refuses gives
// ECONNREFUSED; across a stalled direction a dial waits for the end of the
// stall or of ctx.
func (n *Network) Dialer(from string) func(ctx context.Context, name string) (net.Conn, error) {
	return func(ctx context.Context, name string) (net.Conn, error) { return n.dial(ctx, from, name) }
}

func (n *Network) dial(ctx context.Context, from, to string) (net.Conn, error) {
	local := n.localAddr(from)
	fail := func(err error) error {
		return &net.OpError{Op: "dial", Net: "mem", Source: local, Addr: Addr(to), Err: err}
	}
	if err := n.handshake(ctx, from, to); err != nil {
		return nil, fail(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	l, known := n.listeners[to]
	if !known {
		return nil, fail(&net.DNSError{Err: "no such host", Name: to, IsNotFound: true})
	}
	if l == nil || l.mode == Refusing {
		return nil, fail(os.NewSyscallError("connect", syscall.ECONNREFUSED))
	}
	p := &pair{net: n, names: [2]string{from, to}, listener: l}
	p.dirs[0] = direction{limit: n.buffer, shape: n.shape(from, to)}
	p.dirs[1] = direction{limit: n.buffer, shape: n.shape(to, from)}
	n.pairs[p] = struct{}{}
	l.backlog = append(l.backlog, newConn(p, 1, Addr(to), local))
	n.changed.wake()
	return newConn(p, 0, local, Addr(to)), nil
}

func (n *Network) localAddr(from string) Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dialled++
	host, _, _ := strings.Cut(from, ":")
	return Addr(fmt.Sprintf("%s:%d", host, 40000+n.dialled))
}

// handshake waits as long as the first packets of a connection take.
func (n *Network) handshake(ctx context.Context, from, to string) error {
	began := time.Now()
	for {
		n.mu.Lock()
		there, back := n.shape(from, to), n.shape(to, from)
		changed := n.changed.wait()
		n.mu.Unlock()
		wait := time.Until(began.Add(there.Latency + back.Latency))
		stalled := there.Stall || back.Stall
		if wait <= 0 && !stalled {
			return ctx.Err()
		}
		if err := pause(ctx, changed, wait, stalled); err != nil {
			return err
		}
	}
}

// pause waits for a change, for the end of ctx, or, unless stalled, for a time.
func pause(ctx context.Context, changed <-chan struct{}, wait time.Duration, stalled bool) error {
	var arrived <-chan time.Time
	if !stalled {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		arrived = timer.C
	}
	select {
	case <-arrived:
	case <-changed:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// Shape sets how bytes travel from one name to another, on present and later
// connections; "" stands for anyone, and the most exact rule holds (a sender's
// before a receiver's). It replaces what Conn.Shape had set.
func (n *Network) Shape(from, to string, s Shape) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.shapes[[2]string{from, to}] = s
	for p := range n.pairs {
		p.reshape(0, n.shape(p.names[0], p.names[1]))
		p.reshape(1, n.shape(p.names[1], p.names[0]))
	}
	n.changed.wake()
}

// ShapeBoth is Shape in both directions.
func (n *Network) ShapeBoth(a, b string, s Shape) {
	n.Shape(a, b, s)
	n.Shape(b, a, s)
}

// shape is the rule for a direction. n.mu is held.
func (n *Network) shape(from, to string) Shape {
	for _, key := range [][2]string{{from, to}, {from, ""}, {"", to}} {
		if s, ok := n.shapes[key]; ok {
			return s
		}
	}
	return n.shapes[[2]string{}]
}

// Cut breaks all connections between two names, whoever dialled, at once and
// whatever stalls: both sides get ECONNRESET. "" stands for anyone.
func (n *Network) Cut(a, b string) {
	match := func(x, y string) bool { return (a == "" || a == x) && (b == "" || b == y) }
	n.cut(func(p *pair) bool { return match(p.names[0], p.names[1]) || match(p.names[1], p.names[0]) })
}

func (n *Network) cut(which func(*pair) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for p := range n.pairs {
		if which(p) {
			delete(n.pairs, p)
			p.cut()
		}
	}
}

// Open is the number of connections that are not closed on both sides.
func (n *Network) Open() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.pairs)
}

// forget drops a pair that is over.
func (n *Network) forget(p *pair) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pairs, p)
}

// Addr is a name as a net.Addr of network "mem".
type Addr string

// Network is "mem".
func (Addr) Network() string { return "mem" }

func (a Addr) String() string { return string(a) }

// broadcast wakes everybody who waits. Guarded by its owner's lock.
type broadcast struct{ c chan struct{} }

func (b *broadcast) wait() <-chan struct{} {
	if b.c == nil {
		b.c = make(chan struct{})
	}
	return b.c
}

func (b *broadcast) wake() {
	if b.c != nil {
		close(b.c)
		b.c = nil
	}
}
