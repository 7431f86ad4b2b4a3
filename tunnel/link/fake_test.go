package link

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/mem"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// noPing keeps pings out of tests that count packets.
const noPing = wire.AllExtensions &^ wire.ExtPing

// fakeStream records what is sent, payloads copied, and delivers what a test
// puts in. With a gate, each SendMsg waits for a token.
type fakeStream struct {
	gate     chan struct{} // nil: sends never wait
	incoming chan wire.Packet
	ended    chan struct{} // closed by end
	inside   atomic.Int32  // concurrent SendMsg calls

	mu      sync.Mutex
	sent    []sentPacket
	sendErr error // what SendMsg returns from now on
	recvErr error // what RecvMsg returns after end
	onSend  func(wire.Packet)
	sink    func(sentPacket) // gets packets instead of sent
	broken  bool             // two SendMsg ran at once
	endOnce sync.Once
}

type sentPacket struct {
	wire.Packet
	data []byte
}

func newFakeStream() *fakeStream {
	return &fakeStream{incoming: make(chan wire.Packet, 100), ended: make(chan struct{}), recvErr: io.EOF}
}

func (f *fakeStream) Context() context.Context { return context.Background() }

func (f *fakeStream) SendMsg(m any) error {
	if f.inside.Add(1) != 1 {
		f.mu.Lock()
		f.broken = true
		f.mu.Unlock()
	}
	defer f.inside.Add(-1)
	if f.gate != nil {
		select {
		case <-f.gate:
		case <-f.ended:
			return f.recvErr
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sendErr != nil {
		return f.sendErr
	}
	p := *m.(*wire.Packet)
	s := sentPacket{Packet: p}
	if p.Payload.Len() > 0 {
		s.data = p.Payload.Bytes()
	}
	s.Payload = wire.Payload{}
	if f.sink != nil {
		f.sink(s)
		return nil
	}
	f.sent = append(f.sent, s)
	if f.onSend != nil {
		f.onSend(s.Packet)
	}
	return nil
}

func (f *fakeStream) RecvMsg(m any) error {
	select {
	case p := <-f.incoming:
		*m.(*wire.Packet) = p
		return nil
	case <-f.ended:
		return f.recvErr
	}
}

// end ends the stream with err.
func (f *fakeStream) end(err error) {
	f.endOnce.Do(func() {
		f.recvErr = err
		close(f.ended)
	})
}

// take returns what was sent since the last call.
func (f *fakeStream) take(t testing.TB) []sentPacket {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken {
		t.Error("two goroutines were in SendMsg at once")
	}
	out := f.sent
	f.sent = nil
	return out
}

// start runs a link's writer and ends it, and its stream, with the test.
func start(t testing.TB, cfg Config) (*Link, *fakeStream) {
	t.Helper()
	f := newFakeStream()
	l := startOn(t, f, cfg)
	return l, f
}

func startOn(t testing.TB, f *fakeStream, cfg Config) *Link {
	t.Helper()
	cfg.Stream = f
	l := New(cfg)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = l.Run()
	}()
	t.Cleanup(func() {
		l.Close(nil)
		f.end(io.EOF)
		<-done
	})
	return l
}

// countingPool counts the buffers that are out. They are large enough for grpc
// to count their references.
type countingPool struct {
	out  atomic.Int64
	seen atomic.Int64
}

func (c *countingPool) Get(n int) *[]byte {
	c.out.Add(1)
	c.seen.Add(1)
	b := make([]byte, n)
	return &b
}

func (c *countingPool) Put(b *[]byte) {
	c.out.Add(-1)
	clear((*b)[:cap(*b)]) // a use after this shows as zeros
}

// payload returns n bytes (at least 2048, to be counted) all of value v.
func (c *countingPool) payload(v byte, n int) wire.Payload {
	n = max(n, 2048)
	b := c.Get(n)
	for i := range *b {
		(*b)[i] = v
	}
	return wire.PayloadOf(mem.BufferSlice{mem.NewBuffer(b, c)})
}

// check fails the test unless every buffer came back once.
func (c *countingPool) check(t testing.TB) {
	t.Helper()
	if n := c.out.Load(); n != 0 {
		t.Errorf("%d of %d buffers not freed exactly once", n, c.seen.Load())
	}
}
