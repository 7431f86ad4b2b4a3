package link

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"google.golang.org/grpc/mem"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// pattern is the byte at an offset of a tunnel's data, so that what arrives
// shows where it came from.
func pattern(id wire.ConnectionID, off int64) byte {
	return byte(off*31) ^ byte(off>>8) ^ byte(id*97)
}

// checker is a stream's far end: it checks each tunnel's bytes and end.
type checker struct {
	mu      sync.Mutex
	tunnels map[wire.ConnectionID]*arrival
	faults  []string
	packets int
}

type arrival struct {
	bytes  int64
	half   bool
	closes int
}

func (c *checker) packet(s sentPacket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.packets++
	a := c.tunnels[s.ConnectionID]
	if a == nil {
		a = &arrival{}
		c.tunnels[s.ConnectionID] = a
	}
	switch s.Type {
	case wire.Data:
		if a.half || a.closes > 0 {
			c.faults = append(c.faults, fmt.Sprintf("tunnel %d: data after its end", s.ConnectionID))
		}
		if len(s.data) == 0 || len(s.data) > MaxData {
			c.faults = append(c.faults, fmt.Sprintf("tunnel %d: DATA of %d bytes", s.ConnectionID, len(s.data)))
		}
		for i, b := range s.data {
			if b != pattern(s.ConnectionID, a.bytes+int64(i)) {
				c.faults = append(c.faults, fmt.Sprintf("tunnel %d: wrong byte at %d", s.ConnectionID, a.bytes+int64(i)))
				break
			}
		}
		a.bytes += int64(len(s.data))
	case wire.HalfClose:
		a.half = true
	case wire.CloseRequest:
		a.closes++
	}
}

// tunnelRun is one tunnel of the model: a writer, a granter, and one way to end.
type tunnelRun struct {
	s       *Sender
	id      wire.ConnectionID
	rng     *rand.Rand
	pool    *countingPool
	written int64
	granted int64
	aborted bool
}

// write writes about total bytes in pieces; it returns the first error.
func (r *tunnelRun) write(total int64) error {
	for r.written < total {
		n := 1 + r.rng.IntN(3000)
		if r.rng.IntN(4) == 0 {
			n = 1 + r.rng.IntN(100<<10)
		}
		b := r.pool.Get(n)
		for i := range *b {
			(*b)[i] = pattern(r.id, r.written+int64(i))
		}
		buf := mem.NewBuffer(b, r.pool)
		if mem.IsBelowBufferPoolingThreshold(n) { // grpc does not count these
			r.pool.out.Add(-1)
		}
		if err := r.s.Write(wire.PayloadOf(mem.BufferSlice{buf})); err != nil {
			return err
		}
		r.written += int64(n)
	}
	return nil
}

// run drives the tunnel; abortAfter < 0 lets it end in order.
func (r *tunnelRun) run(total int64, abortAfter int64) error {
	var wg sync.WaitGroup
	stop := make(chan struct{})
	defer wg.Wait()
	defer close(stop)
	rng := rand.New(rand.NewPCG(uint64(r.id), 99))
	wg.Go(func() { // the granter plays the reader of CREDIT packets
		for r.granted < 3*total {
			select {
			case <-stop:
				return
			default:
			}
			n := 1 + rng.Int64N(20000)
			r.granted += n
			_ = r.s.AddCredit(n)
		}
	})
	if abortAfter >= 0 {
		r.aborted = true
		wg.Go(func() {
			for r.s.Progress() < abortAfter {
				select {
				case <-stop:
				default:
					runtime.Gosched()
					continue
				}
				break
			}
			r.s.Abort(&wire.Packet{Type: wire.CloseRequest, ConnectionID: r.id})
		})
	}
	err := r.write(total)
	if abortAfter >= 0 {
		if err != nil && !errors.Is(err, ErrAborted) {
			return err
		}
		return nil
	}
	if err != nil {
		return err
	}
	if r.rng.IntN(2) == 0 {
		r.s.Finish(wire.Packet{Type: wire.HalfClose, ConnectionID: r.id})
	}
	r.s.Finish(wire.Packet{Type: wire.CloseRequest, ConnectionID: r.id})
	wg.Wait()
	return nil
}

// TestModel runs many tunnels with real concurrency and checks every byte,
// every end and every buffer.
func TestModel(t *testing.T) {
	for _, ext := range []wire.Extensions{wire.AllExtensions, 0} {
		pool := &countingPool{}
		c := &checker{tunnels: map[wire.ConnectionID]*arrival{}}
		f := newFakeStream()
		f.sink = c.packet
		l := startOn(t, f, Config{Extensions: ext})
		var wg sync.WaitGroup
		runs := make([]*tunnelRun, 40)
		for i := range runs {
			id := wire.ConnectionID(i + 1)
			r := &tunnelRun{id: id, rng: rand.New(rand.NewPCG(7, uint64(i))), pool: pool, s: l.NewSender(id, int64(i*1000))}
			runs[i] = r
			abortAfter := int64(-1)
			if i%4 == 3 {
				abortAfter = int64(i) * 5000
			}
			wg.Go(func() {
				if err := r.run(400<<10, abortAfter); err != nil {
					t.Errorf("tunnel %d: %v", id, err)
				}
			})
		}
		wg.Wait()
		if err := l.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.take(t)
		for _, fault := range c.faults {
			t.Error(fault)
		}
		for _, r := range runs {
			a := c.tunnels[r.id]
			switch {
			case a == nil || a.closes != 1:
				t.Errorf("tunnel %d: ended as %+v", r.id, a)
			case !r.aborted && (a.bytes != r.written || r.s.Progress() != r.written || r.s.Queued() != 0):
				t.Errorf("tunnel %d: wrote %d, arrived %d, progress %d, queued %d", r.id, r.written, a.bytes, r.s.Progress(), r.s.Queued())
			case r.aborted && a.bytes > r.written+100<<10:
				t.Errorf("tunnel %d: wrote %d, arrived %d", r.id, r.written, a.bytes)
			}
		}
		pool.check(t)
	}
}

// TestModelLinkEnds ends the link in the middle: everybody gets its error and
// every buffer comes back.
func TestModelLinkEnds(t *testing.T) {
	for round := range 20 {
		pool := &countingPool{}
		c := &checker{tunnels: map[wire.ConnectionID]*arrival{}}
		f := newFakeStream()
		f.sink = c.packet
		reason := errors.New("cut")
		l := startOn(t, f, Config{Extensions: wire.AllExtensions, Kill: func(error) { f.end(io.ErrClosedPipe) }})
		var wg sync.WaitGroup
		for i := range 10 {
			id := wire.ConnectionID(i + 1)
			r := &tunnelRun{id: id, rng: rand.New(rand.NewPCG(uint64(round), uint64(i))), pool: pool, s: l.NewSender(id, 1<<40)}
			wg.Go(func() {
				if err := r.write(1 << 40); !errors.Is(err, reason) {
					t.Errorf("tunnel %d: %v", id, err)
				}
				if err := r.s.Write(wire.PayloadBytes([]byte("late"))); !errors.Is(err, reason) {
					t.Errorf("tunnel %d, late: %v", id, err)
				}
				r.s.Finish(wire.Packet{Type: wire.CloseRequest, ConnectionID: id})
				r.s.Abort(&wire.Packet{Type: wire.CloseRequest, ConnectionID: id})
			})
		}
		_ = l.NewSender(100, 0).Write(pool.payload(1, 5000)) // waits for credit
		for c.count() < 5*round {
			runtime.Gosched()
		}
		l.Kill(reason)
		wg.Wait()
		f.take(t)
		for _, fault := range c.faults {
			t.Error(fault)
		}
		l.mu.Lock()
		for l.sending { // the last buffer is with the stream
			l.mu.Unlock()
			l.mu.Lock()
		}
		l.mu.Unlock()
		pool.check(t)
	}
}

func (c *checker) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.packets
}
