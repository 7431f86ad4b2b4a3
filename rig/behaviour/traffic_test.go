package behaviour

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// TestBehaviour10HeadAndPayload: the head of a CONNECT and the first payload come
// in one write. With gRPC there is no such thing: data before the answer to a
// dial is an error of the protocol.
func TestBehaviour10HeadAndPayload(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		s := newStage(t, k, options{})
		e := newEndpoint(t, echo)
		many(t, 200, 8, func(i int) error {
			payload := bytesOf(uint64(i), 1+(i*i*97)%(128<<10))
			ctx, cancel := context.WithTimeout(context.Background(), hang)
			defer cancel()
			conn, raw, err := s.reach(ctx)
			if err != nil {
				return err
			}
			c, err := s.ask(ctx, conn, raw, append([]byte(connectRequest(e.addr)), payload...))
			if err != nil {
				return err
			}
			defer c.Close()
			if err := expect(c, payload); err != nil {
				return err
			}
			return tryPing(c, hang) // and what follows stands behind it
		})
	}, connectUDS, connectTLS)
}

// TestBehaviour10BothWays: bulk in both directions at once, over 8 tunnels.
func TestBehaviour10BothWays(t *testing.T) {
	each := scaled[int64](16<<20, 256<<20) // in a soak 2 GiB each way in all
	eachKind(t, func(t *testing.T, k kind) {
		s := newStage(t, k, options{})
		many(t, 8, 8, func(i int) error { return s.bothWays(uint64(10+i), uint64(20+i), each) })
	})
}

// bothWays sends n bytes each way at once, and checks all of them.
func (s *stage) bothWays(up, down uint64, n int64) error {
	arrived := make(chan digest, 1)
	e := newEndpoint(s.t, func(_ *endpoint, c *net.TCPConn) {
		var giving sync.WaitGroup
		defer giving.Wait()
		giving.Go(func() {
			give(c, down, n)
			c.CloseWrite()
		})
		arrived <- take(c)
	})
	c, err := s.dial(e.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	sent := make(chan error, 1)
	go func() {
		if err := give(c, up, n); err != nil {
			sent <- fmt.Errorf("write: %w", err)
			return
		}
		sent <- c.CloseWrite()
	}()
	if got, want := take(c), expected(down, n); got != want {
		return fmt.Errorf("down: %d of %d bytes arrived (digests equal: %v), then: %v", got.n, n, got.sum == want.sum, got.err)
	}
	if err := <-sent; err != nil {
		return err
	}
	if got, want := <-arrived, expected(up, n); got != want {
		return fmt.Errorf("up: %d of %d bytes arrived (digests equal: %v), then: %v", got.n, n, got.sum == want.sum, got.err)
	}
	return nil
}

// TestBehaviour10Short: many short tunnels without one failure.
func TestBehaviour10Short(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		tunnels := 10_000
		if k == connectTLS || k == grpcSingle {
			tunnels = scaled(3000, tunnels) // each pays a TLS or gRPC connection
		}
		s := newStage(t, k, options{})
		e := newEndpoint(t, echo)
		many(t, tunnels, 64, func(i int) error {
			c, err := s.dial(e.addr)
			if err != nil {
				return err
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(hang))
			word := bytesOf(uint64(i), 1+i%300)
			if _, err := c.Write(word); err != nil {
				return err
			}
			if err := expect(c, word); err != nil {
				return err
			}
			if i%2 == 0 {
				return nil // the client closes
			}
			if err := c.CloseWrite(); err != nil {
				return err
			}
			return expectEOF(c) // the endpoint closes
		})
	})
}

// TestBehaviour10Nothing: data of no length is nothing, neither an end nor an
// error, and tunnels that carry nothing end in order.
func TestBehaviour10Nothing(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		s := newStage(t, k, options{})
		e := newEndpoint(t, echo)
		c := s.mustDial(t, e.addr)
		for range 3 {
			if n, err := c.Write(nil); n != 0 || err != nil {
				t.Fatalf("a write of nothing: %d, %v", n, err)
			}
			ping(t, c)
		}
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if err := expectEOF(c); err != nil {
			t.Fatal(err)
		}
		c.Close()

		empty := s.mustDial(t, e.addr)
		if err := empty.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if err := expectEOF(empty); err != nil {
			t.Fatal(err)
		}
		empty.Close()
	})
}

// TestBehaviour10ZeroLength: a gRPC client's DATA packets without bytes, between
// others. (CONNECT has no packets.)
func TestBehaviour10ZeroLength(t *testing.T) {
	s := newStage(t, grpcSingle, options{})
	e := newEndpoint(t, echo)
	unix := func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.server.Frontend)
	}
	for _, ext := range []wire.Extensions{0, link.ClientExtensions} {
		peer := tunneltest.Proxy(t, unix, "localhost", ext)
		peer.Send(wire.Packet{Type: wire.DialRequest, Protocol: "tcp", Address: e.addr, DialID: 10})
		id := peer.Expect(wire.DialResponse).ConnectionID
		if id == 0 {
			t.Fatal("the dial failed")
		}
		nothing := wire.Packet{Type: wire.Data, ConnectionID: id}
		peer.Send(nothing, nothing)
		for i := range 20 {
			word := bytesOf(uint64(i), 100)
			peer.SendData(id, word)
			peer.Send(nothing)
			peer.ExpectData(id, word)
		}
		peer.Send(wire.Packet{Type: wire.CloseRequest, ConnectionID: id})
		peer.ExpectOn(wire.CloseResponse, id)
		peer.Close()
	}
}
