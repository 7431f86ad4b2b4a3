package behaviour

import (
	"fmt"
	"net"
	"testing"
	"time"
)

// sizes of what is written before a close.
func sizes() []int64 { return []int64{100 << 10, 4 << 20, 64 << 20} }

// slowFor is how long a slow reader takes 1 MiB/s, before it reads freely.
func slowFor() time.Duration { return scaled(2*time.Second, 15*time.Second) }

// TestBehaviour02Delivery: whoever writes and closes at once in an orderly way is
// heard to the last byte by a slow reader, and then comes a FIN.
func TestBehaviour02Delivery(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		s := newStage(t, k, options{})
		var runs runs
		for _, n := range sizes() {
			runs.add(fmt.Sprintf("up-%dKiB", n>>10), func(t *testing.T) { s.deliverUp(t, n) })
			runs.add(fmt.Sprintf("down-%dKiB", n>>10), func(t *testing.T) { s.deliverDown(t, n) })
		}
		if k != connectTLS { // closing with unread bytes is a reset there, by the kernel
			runs.add("up-unread", func(t *testing.T) { s.deliverUnread(t, 4<<20) })
		}
		runs.together(t)
	})
}

func (s *stage) deliverUp(t *testing.T, n int64) {
	arrived := make(chan digest, 1)
	e := newEndpoint(t, func(_ *endpoint, c *net.TCPConn) {
		c.SetReadBuffer(64 << 10)
		arrived <- takeSlowly(c, slowFor())
	})
	c := s.mustDial(t, e.addr)
	if err := give(c, uint64(n), n); err != nil {
		t.Fatalf("write: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	compare(t, arrived, expected(uint64(n), n))
}

// deliverUnread: the endpoint answers each of its reads, and the client closes
// without having read any of that.
func (s *stage) deliverUnread(t *testing.T, n int64) {
	arrived := make(chan digest, 1)
	e := newEndpoint(t, func(_ *endpoint, c *net.TCPConn) {
		arrived <- take(&answering{c})
	})
	c := s.mustDial(t, e.addr)
	if err := give(c, uint64(n), n); err != nil {
		t.Fatalf("write: %v", err)
	}
	c.Close()
	compare(t, arrived, expected(uint64(n), n))
}

// answering writes a little for each read.
type answering struct{ c *net.TCPConn }

func (a *answering) Read(b []byte) (int, error) {
	n, err := a.c.Read(b)
	if n > 0 {
		a.c.Write([]byte("noted\n")) // that nobody takes it any more is no news
	}
	return n, err
}

func (s *stage) deliverDown(t *testing.T, n int64) {
	written := make(chan error, 1)
	e := newEndpoint(t, func(_ *endpoint, c *net.TCPConn) {
		written <- give(c, uint64(n), n)
	})
	c := s.mustDial(t, e.addr)
	defer c.Close()
	arrived := make(chan digest, 1)
	go func() { arrived <- takeSlowly(c, slowFor()) }()
	compare(t, arrived, expected(uint64(n), n))
	if err := <-written; err != nil {
		t.Errorf("the endpoint's write: %v", err)
	}
}

// compare waits for what arrives and checks it, to the last byte and with EOF.
func compare(t *testing.T, arrived <-chan digest, want digest) {
	t.Helper()
	select {
	case got := <-arrived:
		if got != want {
			t.Errorf("%d of %d bytes arrived (digests equal: %v), then: %v", got.n, want.n, got.sum == want.sum, got.err)
		}
	case <-time.After(3 * hang):
		t.Fatal("no end arrives")
	}
}
