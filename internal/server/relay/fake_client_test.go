package relay

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/mem"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

var errFakeInterrupted = errors.New("fake client interrupted")

// fakeClient is a Frontend that records what it is told. With the gate shut its
// writes block until it opens or Interrupt is called.
type fakeClient struct {
	t      *testing.T
	inside atomic.Int32

	mu          sync.Mutex
	cond        *sync.Cond
	shut        bool // writes block
	passes      int  // but so many come through
	interrupted bool
	stubborn    bool  // Interrupt is of no use, what is written arrives
	refuse      error // what writes and Established return
	events      []string
	got         []byte
	failure     *wire.DialError
	end         *End
}

func newClient(t *testing.T) *fakeClient {
	c := &fakeClient{t: t}
	c.cond = sync.NewCond(&c.mu)
	return c
}

// enter checks that the relay calls one method at a time, and waits at the gate.
// mu is held when it returns.
func (c *fakeClient) enter(what string, gate bool) error {
	if c.inside.Add(1) != 1 {
		c.t.Errorf("%s was called beside another method", what)
	}
	c.mu.Lock()
	if c.end != nil || c.failure != nil {
		c.t.Errorf("%s was called after the end; before: %v", what, c.events)
	}
	for gate && c.shut && c.passes == 0 && (!c.interrupted || c.stubborn) {
		c.cond.Wait()
	}
	if gate && c.passes > 0 {
		c.passes--
	}
	switch {
	case gate && c.interrupted && !c.stubborn:
		return errFakeInterrupted
	case gate && c.refuse != nil:
		return c.refuse
	}
	return nil
}

func (c *fakeClient) leave() {
	c.mu.Unlock()
	c.inside.Add(-1)
}

func (c *fakeClient) Established(wire.ConnectionID) error {
	err := c.enter("Established", true)
	defer c.leave()
	if len(c.events) > 0 {
		c.t.Errorf("Established came after %v", c.events)
	}
	c.events = append(c.events, "established")
	return err
}

func (c *fakeClient) Failed(err *wire.DialError) {
	_ = c.enter("Failed", false)
	defer c.leave()
	if len(c.events) > 0 {
		c.t.Errorf("Failed came after %v", c.events)
	}
	c.events = append(c.events, "failed")
	c.failure = err
}

func (c *fakeClient) Write(p wire.Payload) error {
	defer p.Free()
	err := c.enter("Write", true)
	defer c.leave()
	if len(c.events) != 1 {
		c.t.Errorf("Write came after %v", c.events)
	}
	if err == nil {
		c.got = append(c.got, p.Bytes()...)
	}
	return err
}

func (c *fakeClient) CloseWrite() error {
	err := c.enter("CloseWrite", true)
	defer c.leave()
	if len(c.events) != 1 {
		c.t.Errorf("CloseWrite came after %v", c.events)
	}
	c.events = append(c.events, "closewrite")
	return err
}

func (c *fakeClient) Close(end End) {
	_ = c.enter("Close", true)
	defer c.leave()
	c.events = append(c.events, "close")
	c.end = &end
}

func (c *fakeClient) Interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.interrupted = true
	c.cond.Broadcast()
}

// gate shuts or opens the client's side.
func (c *fakeClient) gate(shut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shut = shut
	c.cond.Broadcast()
}

// pass lets n calls through a shut gate.
func (c *fakeClient) pass(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passes += n
	c.cond.Broadcast()
}

// vanish makes all writes fail from now on.
func (c *fakeClient) vanish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = errors.New("fake client is gone")
}

func (c *fakeClient) data() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.got)
}

func (c *fakeClient) wasInterrupted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.interrupted
}

// told is what the client was told last: its end, or nil if it was not told one.
func (c *fakeClient) told() *End {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end
}

func (c *fakeClient) failed() *wire.DialError {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}

// countingPool knows how many buffers are out.
type countingPool struct{ out atomic.Int64 }

func (p *countingPool) Get(n int) *[]byte {
	p.out.Add(1)
	b := make([]byte, n)
	return &b
}

func (p *countingPool) Put(*[]byte) { p.out.Add(-1) }

// payload is a payload whose buffer the pool counts until it is freed.
func (p *countingPool) payload(s string) wire.Payload {
	p.out.Add(1)
	b := make([]byte, len(s), max(2048, len(s)))
	copy(b, s)
	return wire.PayloadOf(mem.BufferSlice{mem.NewBuffer(&b, p)})
}
