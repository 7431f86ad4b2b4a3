package behaviour

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

// TestBehaviour07HalfClose: a client half-closes; an endpoint that answers only
// after EOF is heard. And the other way round.
func TestBehaviour07HalfClose(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		s := newStage(t, k, options{})
		for _, n := range []int64{0, 1, 100 << 10, 8 << 20} {
			t.Run(fmt.Sprintf("client-%d", n), func(t *testing.T) { s.askAndHalfClose(t, n) })
			t.Run(fmt.Sprintf("endpoint-%d", n), func(t *testing.T) { s.answerAndHalfClose(t, n) })
		}
		many(t, 300, 30, func(i int) error { return s.askOnce(uint64(i)) })
	})
}

// askAndHalfClose: the endpoint sends n bytes and closes, when it has read EOF.
func (s *stage) askAndHalfClose(t *testing.T, n int64) {
	asked := make(chan digest, 1)
	e := newEndpoint(t, func(_ *endpoint, c *net.TCPConn) {
		asked <- take(c)
		give(c, 8, n)
	})
	c := s.mustDial(t, e.addr)
	defer c.Close()
	if err := give(c, 7, n); err != nil {
		t.Fatalf("write: %v", err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatalf("half-close: %v", err)
	}
	compare(t, asked, expected(7, n))
	answered := make(chan digest, 1)
	go func() { answered <- take(c) }()
	compare(t, answered, expected(8, n))
}

// answerAndHalfClose: the endpoint sends n bytes and half-closes; the client
// sends as much when it has read EOF.
func (s *stage) answerAndHalfClose(t *testing.T, n int64) {
	asked := make(chan digest, 1)
	e := newEndpoint(t, func(_ *endpoint, c *net.TCPConn) {
		give(c, 8, n)
		c.CloseWrite()
		asked <- take(c)
	})
	c := s.mustDial(t, e.addr)
	defer c.Close()
	answered := make(chan digest, 1)
	go func() { answered <- take(c) }()
	compare(t, answered, expected(8, n))
	if err := give(c, 7, n); err != nil {
		t.Fatalf("write behind the endpoint's EOF: %v", err)
	}
	c.Close()
	compare(t, asked, expected(7, n))
}

// askOnce is askAndHalfClose in small, with an endpoint of its own per seed.
func (s *stage) askOnce(seed uint64) error {
	e := newEndpoint(s.t, func(_ *endpoint, c *net.TCPConn) {
		if text, err := io.ReadAll(c); err == nil {
			c.Write(bytes.ToUpper(text))
		}
	})
	defer e.close()
	c, err := s.dial(e.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(hang))
	question := fmt.Sprintf("question %d", seed)
	if _, err := c.Write([]byte(question)); err != nil {
		return err
	}
	if err := c.CloseWrite(); err != nil {
		return err
	}
	if err := expect(c, bytes.ToUpper([]byte(question))); err != nil {
		return err
	}
	return expectEOF(c)
}

// TestBehaviour07HangUp: a full hang-up is told apart from a half-close, at once
// and later, while the endpoint never closes: the tunnel is over. (Over TCP
// without TLS it could not be; over TLS it is FIN that tells, after
// close_notify.)
func TestBehaviour07HangUp(t *testing.T) {
	eachKindAtOnce(t, func(t *testing.T, k kind) {
		s := newStage(t, k, options{})
		t.Run("at-once", func(t *testing.T) {
			e := newEndpoint(t, neverCloses)
			c := s.mustDial(t, e.addr)
			c.Write([]byte("farewell"))
			c.Close()
			s.endsWithin(t, 5*time.Second)
		})
		t.Run("later", func(t *testing.T) {
			eof := make(chan int64, 1)
			e := newEndpoint(t, func(e *endpoint, c *net.TCPConn) {
				n, _ := io.Copy(io.Discard, c)
				eof <- n
				<-e.over
			})
			c := s.mustDial(t, e.addr)
			c.Write([]byte("question"))
			if err := c.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			select {
			case n := <-eof:
				if n != int64(len("question")) {
					t.Fatalf("%d bytes before EOF", n)
				}
			case <-time.After(hang):
				t.Fatal("no EOF at the endpoint")
			}
			// Half-closed, the tunnel stays.
			after(time.Second)
			if n := s.server.Metric("konnectivity_network_proxy_server_established_connections"); n != 1 {
				t.Fatalf("%v tunnels are established after the half-close", n)
			}
			c.Close()
			s.endsWithin(t, 5*time.Second)
		})
	})
}

// endsWithin waits until no tunnel is left.
func (s *stage) endsWithin(t *testing.T, limit time.Duration) {
	t.Helper()
	settle(t, limit+grace, s.gauges)
}
