package link

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Errors with which a link ends, beside those of its stream.
var (
	// ErrClosed is the link's error after Close(nil).
	ErrClosed = errors.New("link closed")
	// ErrSilent says that nothing at all arrived for SilentAfter.
	ErrSilent = errors.New("link silent: the peer has sent nothing for too long")
	// ErrOutboxFull says that the peer made the outbox grow past MaxOutbox.
	ErrOutboxFull = errors.New("link outbox full: the peer takes too long to read its control packets")
	// ErrStreamEnded stands for the stream's status while only the writer has
	// seen that it ended; Recv returns the status and replaces this by it.
	ErrStreamEnded = errors.New("link's stream has ended")
)

// Stream is what a link needs of a gRPC stream; both sides' streams have it.
// RecvMsg and SendMsg are given *wire.Packet, so the stream must use Codec.
type Stream interface {
	Context() context.Context
	SendMsg(m any) error
	RecvMsg(m any) error
}

// Observer is told of every packet. Calls come from the reader, the writer and
// callers of Sender.Write, so it must be safe for concurrent use; it must not
// block and must not call the link.
type Observer interface {
	Sent(t wire.PacketType)
	SendFailed(t wire.PacketType, err error)
	Received(t wire.PacketType)
	ReceiveFailed(err error)
}

// Config describes a link. Zero limits mean the defaults named here.
type Config struct {
	Stream     Stream
	Extensions wire.Extensions // those that both sides listed
	// Kill drops the connection below the stream at once, so that a blocked
	// SendMsg or RecvMsg returns. May be nil. Called at most once, possibly on a
	// timer's goroutine.
	Kill     func(error)
	Observer Observer // may be nil

	SilentAfter time.Duration // 25 s; only with extension "ping"
	PingIdle    time.Duration // 8 s between pings while no data flows
	PingActive  time.Duration // 1 s between pings while data flows
	MaxOutbox   int           // 65536 control packets waiting
	SenderQueue int64         // 128 KiB waiting per tunnel
}

// Limits of the scheduler, in bytes (DESIGN 4.2).
const (
	quantum = 16 << 10 // what a tunnel may send per round
	// MaxData is the most payload bytes that a link puts into one DATA packet.
	MaxData = 32 << 10
)

// Link is one stream shared by many tunnels. All methods are safe for
// concurrent use, but Run and Recv each belong to one goroutine.
type Link struct {
	// Fixed after construction.
	cfg   Config
	start time.Time
	done  chan struct{}

	// Atomic. Times are nanoseconds since start.
	lastReceived atomic.Int64
	lastPing     atomic.Int64
	killed       atomic.Bool
	closed       atomic.Bool // by Close or Kill; the stream did not fail by itself

	rtt rtt

	// Guarded by mu.
	mu      sync.Mutex
	work    sync.Cond // the writer waits here
	err     error     // why the link ended; nil while it lives
	running bool      // Run is in its loop
	sending bool      // somebody is in SendMsg, and owns packet
	flying  *Sender   // whose data that is, nil for none
	out     outbox
	ring    senderList // tunnels with data and credit, in the order of their turns
	starved senderList // tunnels with data but no credit
	flush   []chan struct{}
	live    liveness

	// Owned by whoever set sending.
	packet wire.Packet
}

// New returns a link that does nothing until Run and Recv are called.
func New(cfg Config) *Link {
	setDefault(&cfg.SilentAfter, 25*time.Second)
	setDefault(&cfg.PingIdle, 8*time.Second)
	setDefault(&cfg.PingActive, time.Second)
	setDefault(&cfg.MaxOutbox, 65536)
	setDefault(&cfg.SenderQueue, 128<<10)
	if cfg.Observer == nil {
		cfg.Observer = nopObserver{}
	}
	l := &Link{cfg: cfg, start: time.Now(), done: make(chan struct{})}
	l.work.L = &l.mu
	l.out.max = cfg.MaxOutbox
	return l
}

func setDefault[T ~int | ~int64](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// Extensions are those negotiated on the link.
func (l *Link) Extensions() wire.Extensions { return l.cfg.Extensions }

// Context is the stream's context.
func (l *Link) Context() context.Context { return l.cfg.Stream.Context() }

// Send queues a control packet: anything but DATA, which needs a Sender, and
// CREDIT, which needs Grant. It never blocks. What the link's extensions do not
// permit is left out: fields, or the whole packet. A packet that is queued
// already may absorb it. On a closed link it does nothing.
func (l *Link) Send(p wire.Packet) {
	if p.Type == wire.Data || p.Type == wire.Credit || !permitted(l.cfg.Extensions, p.Type) {
		p.Payload.Free()
		return
	}
	strip(l.cfg.Extensions, &p)
	l.mu.Lock()
	overflow := l.enqueue(p)
	l.mu.Unlock()
	l.killIf(overflow)
}

// Grant adds n bytes to the credit that the peer holds on id. Grants that have
// not left yet are summed. It never blocks. Without extension "credit", or for
// n <= 0, it does nothing.
func (l *Link) Grant(id wire.ConnectionID, n int64) {
	if n <= 0 || !l.cfg.Extensions.Has(wire.ExtCredit) {
		return
	}
	l.mu.Lock()
	overflow := l.enqueue(wire.Packet{Type: wire.Credit, ConnectionID: id, Window: n})
	l.mu.Unlock()
	l.killIf(overflow)
}

// enqueue puts p into the outbox and wakes the writer. An error means that the
// caller must kill the link with it. mu is held.
func (l *Link) enqueue(p wire.Packet) error {
	if l.err == nil {
		if err := l.out.push(p); err != nil {
			return err
		}
		l.wake()
	}
	return nil
}

// wake makes the writer look for work. mu is held.
func (l *Link) wake() {
	if !l.sending {
		l.work.Signal()
	}
}

func (l *Link) killIf(err error) {
	if err != nil {
		l.Kill(err)
	}
}

// Close ends the link: the writer stops, queued packets are dropped and their
// payloads freed, and all senders' calls return err (ErrClosed for nil). The
// first error stays. Close does not unblock SendMsg or RecvMsg: ending the
// stream does, or Kill. Idempotent; never blocks.
func (l *Link) Close(err error) {
	l.closed.Store(true)
	l.mu.Lock()
	l.closeLocked(err)
	l.mu.Unlock()
}

func (l *Link) closeLocked(err error) {
	if l.err != nil {
		if errors.Is(l.err, ErrStreamEnded) && err != nil {
			l.err = err
		}
		return
	}
	if err == nil {
		err = ErrClosed
	}
	l.err = err
	l.live.stop()
	l.out.clear()
	l.ring.endAll()
	l.starved.endAll()
	if l.flying != nil {
		l.flying.room.Broadcast() // it may be in no list
	}
	for _, c := range l.flush {
		close(c)
	}
	l.flush = nil
	l.work.Signal()
	close(l.done)
}

// Kill is Close, and drops the connection below the stream, so that blocked
// calls return whatever is queued.
func (l *Link) Kill(err error) {
	l.Close(err)
	if l.cfg.Kill != nil && !l.killed.Swap(true) {
		l.cfg.Kill(l.Err())
	}
}

// Done is closed when the link has ended. Recv may still return what had arrived
// by then.
func (l *Link) Done() <-chan struct{} { return l.done }

// Err is why the link ended, nil while it lives.
func (l *Link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Flush waits until everything queued so far and meanwhile has been handed to
// the stream, the link has ended (its error) or ctx has (ctx's error). Tunnels
// that wait for credit are not waited for.
func (l *Link) Flush(ctx context.Context) error {
	l.mu.Lock()
	if l.err != nil || !l.sending && !l.hasWork() {
		defer l.mu.Unlock()
		return l.err
	}
	c := make(chan struct{})
	l.flush = append(l.flush, c)
	l.mu.Unlock()
	select {
	case <-c:
		return l.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sendError turns an error of SendMsg into the link's: on a client's stream
// io.EOF means only that RecvMsg knows more.
func sendError(err error) error {
	if errors.Is(err, io.EOF) {
		return ErrStreamEnded
	}
	return err
}

type nopObserver struct{}

func (nopObserver) Sent(wire.PacketType)              {}
func (nopObserver) SendFailed(wire.PacketType, error) {}
func (nopObserver) Received(wire.PacketType)          {}
func (nopObserver) ReceiveFailed(error)               {}
