package serverlink

import (
	"context"
	"errors"
	"net"
	"runtime/pprof"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/culvert-proxy/culvert/internal/agent/endpoint"
	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Events is told what a server says of itself and of the others. It is called
// on the link's goroutines and must not block.
type Events interface {
	// CountChanged: the server says that there are now n servers.
	CountChanged(n int)
	// Draining: the server wants this agent to move on. The link goes on until
	// the server ends it. May be called more than once.
	Draining()
}

// Link is one connected link. Methods are safe for concurrent use, except that
// exactly one of Run and Drop is called, once.
type Link struct {
	// Fixed after construction.
	attempt *attempt
	cc      *grpc.ClientConn
	stream  grpc.ClientStream
	hello   link.ServerHello
	window  int32
	since   time.Time
	link    *link.Link
	table   *endpoint.Table
	labels  context.Context // carries the profiler labels of the link's goroutines
	// Closed when the reader and the writer have ended and the watch is over,
	// and when Run has returned.
	readDone, written, watched, done chan struct{}

	// Atomic.
	draining atomic.Bool // the server's
}

// errDropped is why a duplicate ends, errClosed why a link ends that is no longer wanted.
var (
	errDropped = errors.New("duplicate link")
	errClosed  = errors.New("agent closed the link")
)

func newLink(a *attempt, cc *grpc.ClientConn, stream grpc.ClientStream, hello link.ServerHello, window int32) *Link {
	l := &Link{
		attempt:  a,
		cc:       cc,
		stream:   stream,
		hello:    hello,
		window:   window,
		since:    time.Now(),
		readDone: make(chan struct{}),
		written:  make(chan struct{}),
		watched:  make(chan struct{}),
		done:     make(chan struct{}),
	}
	l.labels = pprof.WithLabels(context.Background(), pprof.Labels("server", hello.ServerID, "agent", a.conn.cfg.AgentID))
	cfg := a.conn.cfg.Link
	cfg.Stream, cfg.Extensions, cfg.Observer = stream, hello.Extensions, a.conn.obs
	cfg.Kill = func(error) { a.kill() }
	l.link = link.New(cfg)
	return l
}

// Drop ends the link without having used it: it is a duplicate.
func (l *Link) Drop() {
	l.link.Close(errDropped)
	l.end(errDropped)
}

// end frees the stream and its connection.
func (l *Link) end(err error) {
	l.attempt.cancel(err)
	_ = l.cc.Close()
	l.attempt.kill()
}

// Run keeps the link: it tells the server so and serves it until the link ends,
// and returns why. All dials and connections of the link are over then.
func (l *Link) Run(ev Events) error {
	defer close(l.done)
	l.table = l.attempt.conn.rooms.Attach(l.labels, outlet{l.link})
	l.link.Send(wire.Packet{Type: wire.Ready})
	go l.write()
	go l.watch(ev)
	err := l.read(ev)
	close(l.readDone)
	l.table.Lost(err)
	l.link.Close(err)
	l.end(err)
	<-l.written
	<-l.watched
	return err
}

// write is the writer's goroutine. It may learn first that the link is lost.
// The reader still has to hand out what had arrived; but if it waits for one
// connection's queue, that must not hold all the others up.
func (l *Link) write() {
	pprof.SetGoroutineLabels(l.labels)
	err := l.link.Run()
	close(l.written)
	if errors.Is(err, errClosed) {
		return
	}
	hurry := time.NewTimer(readerGrace)
	defer hurry.Stop()
	select {
	case <-l.readDone:
	case <-hurry.C:
		l.table.Lost(err)
	}
}

// readerGrace is how long a reader may go on when the writer has failed.
const readerGrace = 200 * time.Millisecond

// watch waits for gRPC to leave the state READY. After a GOAWAY the stream goes
// on: that is a server that wants to be left. After the loss of the connection it
// does not, which a reader that waits for a connection's queue does not see; a
// DRAIN, right for the one, shows the other to the writer.
func (l *Link) watch(ev Events) {
	pprof.SetGoroutineLabels(l.labels)
	defer close(l.watched)
	ctx := l.stream.Context()
	// A stream may begin a moment before its connection is said to be READY.
	for l.cc.GetState() == connectivity.Connecting {
		if !l.cc.WaitForStateChange(ctx, connectivity.Connecting) {
			return
		}
	}
	if !l.cc.WaitForStateChange(ctx, connectivity.Ready) || l.link.Err() != nil {
		return
	}
	l.drained(ev)
	streamsEnd := time.NewTimer(readerGrace) // a lost connection's streams end a moment later
	defer streamsEnd.Stop()
	select {
	case <-streamsEnd.C:
		l.Drain()
	case <-ctx.Done():
	}
}

// read is the reader: it hands every packet to whom it concerns until the link
// ends. It never sends.
func (l *Link) read(ev Events) error {
	pprof.SetGoroutineLabels(l.labels)
	var p wire.Packet
	for {
		if err := l.link.Recv(&p); err != nil {
			return err
		}
		l.dispatch(p, ev)
	}
}

// dispatch is a switch over the packet's type. What servers may not send, and
// types that nobody knows, are ignored. COMPAT 1.6.
func (l *Link) dispatch(p wire.Packet, ev Events) {
	switch p.Type {
	case wire.DialRequest:
		l.table.DialRequest(p)
	case wire.DialClose:
		l.table.DialClosed(p)
	case wire.Data:
		l.table.Data(p)
	case wire.CloseRequest:
		l.table.CloseRequest(p)
	case wire.HalfClose:
		l.table.HalfClosed(p)
	case wire.Credit:
		l.table.Credit(p)
	case wire.Drain:
		if l.hello.Extensions.Has(wire.ExtDrain) && !p.Mismatched {
			l.drained(ev)
		}
	case wire.ServerCount:
		if !p.Mismatched {
			ev.CountChanged(int(min(max(p.Count, 0), maxCount)))
		}
	default:
		p.Payload.Free()
	}
}

// maxCount is more servers than there will ever be.
const maxCount = 1 << 20

func (l *Link) drained(ev Events) {
	if !l.draining.Swap(true) {
		ev.Draining()
	}
}

// Drain asks the server for no more dials than it must send.
func (l *Link) Drain() { l.link.Send(wire.Packet{Type: wire.Drain}) }

// Close ends a link that runs, after what is queued has been sent if ctx allows
// for that, and waits until Run has returned.
func (l *Link) Close(ctx context.Context) {
	_ = l.link.Flush(ctx)
	l.link.Close(errClosed)
	l.await(ctx, l.written)
	if ctx.Err() == nil {
		_ = l.stream.CloseSend()
		l.await(ctx, l.done)
	}
	l.attempt.cancel(errClosed)
	l.attempt.kill()
	<-l.done
}

func (l *Link) await(ctx context.Context, c <-chan struct{}) {
	select {
	case <-c:
	case <-ctx.Done():
	}
}

// ServerID is what the server calls itself.
func (l *Link) ServerID() string { return l.hello.ServerID }

// ServerCount is what its headers said; 0 is unknown.
func (l *Link) ServerCount() int { return l.hello.ServerCount }

// Extensions are those negotiated.
func (l *Link) Extensions() wire.Extensions { return l.hello.Extensions }

// Target is what was connected to.
func (l *Link) Target() Target { return l.attempt.target }

// Since is when the link was connected.
func (l *Link) Since() time.Time { return l.since }

// LastReceived is when the server sent something last.
func (l *Link) LastReceived() time.Time { return l.link.LastReceived() }

// MinRTT is the shortest round trip of late, zero if unknown.
func (l *Link) MinRTT() time.Duration { return l.link.MinRTT() }

// RemoteAddr is the address that the connection goes to: the server's, or a proxy's.
func (l *Link) RemoteAddr() net.Addr {
	l.attempt.mu.Lock()
	defer l.attempt.mu.Unlock()
	return l.attempt.raw.RemoteAddr()
}

// outlet is a link as endpoints see it.
type outlet struct{ *link.Link }

// NewSender implements endpoint.Outlet.
func (o outlet) NewSender(id wire.ConnectionID, credit int64) endpoint.Sender {
	return o.Link.NewSender(id, credit)
}
