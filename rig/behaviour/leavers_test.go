package behaviour

import (
	"context"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestBehaviour05Leavers: clients that leave before their tunnel is up leave
// nothing behind, although the endpoint never closes.
func TestBehaviour05Leavers(t *testing.T) {
	const leavers = 3000
	eachKind(t, func(t *testing.T, k kind) {
		// A dial that nobody wants any more ends for that, and not because its time
		// is up. But over TCP a FIN does not cancel a dial: there it is the agent's
		// limit that ends one into the black hole, and then the client is found gone.
		limit := 5 * time.Second
		o := options{server: []string{"--backend-dial-timeout=0"}, agent: []string{"--dial-timeout=10m"}}
		if k == connectTLS {
			limit += 5 * time.Second
			o = options{}
		}
		s := newStage(t, k, o)
		e := newEndpoint(t, neverCloses)
		hole := blackHole(t)
		var left, up atomic.Int64
		// Few at a time, so that dials are about as quick as their clients.
		many(t, leavers, 6, func(i int) error {
			address := e.addr
			if i%10 == 0 {
				address = hole // certain to be pending when its client leaves
			}
			wasUp, err := s.leaveEarly(address, i)
			if wasUp {
				up.Add(1)
			} else {
				left.Add(1)
			}
			return err
		})
		t.Logf("%d left before their tunnel was up, %d right after; the endpoint saw %d connections", left.Load(), up.Load(), e.count())
		s.front.close()
		s.quiet(limit + grace)
		if n := e.live(); n > 0 {
			t.Errorf("%d endpoint sockets are still connected", n)
		}
	})
}

// leaveEarly dials and leaves within 2 ms (CONNECT) or 10 ms (gRPC), whether the
// tunnel is up by then or not.
func (s *stage) leaveEarly(address string, i int) (up bool, err error) {
	if s.kind.connect() {
		return false, s.leaveConnect(address, i)
	}
	ctx, cancel := context.WithTimeout(context.Background(), rand.N(10*time.Millisecond))
	defer cancel()
	c, err := s.Dial(ctx, address)
	if err != nil {
		return false, nil // that it came too late, or was refused for it, is what this is about
	}
	if i%2 == 0 {
		return true, c.Close()
	}
	return true, c.Abort()
}

func (s *stage) leaveConnect(address string, i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	conn, raw, err := s.reach(ctx)
	if err != nil {
		return err
	}
	if _, err := conn.Write([]byte(connectRequest(address))); err != nil {
		return err
	}
	after(rand.N(2 * time.Millisecond))
	if tcp, ok := raw.(*net.TCPConn); ok && i%2 == 0 {
		tcp.SetLinger(0)
		return tcp.Close()
	}
	return conn.Close()
}

// blackHole is an address that answers no SYN: its backlog is full and nobody
// accepts.
func blackHole(t testing.TB) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*unix.SockaddrInet4).Port}).String()
	for range 16 {
		c, err := net.DialTimeout("tcp", address, 300*time.Millisecond)
		if err != nil {
			return address // full
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Fatal("the backlog does not fill")
	return ""
}
