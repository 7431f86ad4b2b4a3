package frontconnect

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/culvert-proxy/culvert/internal/server/relay"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

func eachMedium(t *testing.T, test func(t *testing.T, f *front)) {
	for _, m := range media() {
		t.Run(m, func(t *testing.T) { test(t, newFront(t, m)) })
	}
}

func TestAnswerThenBytesBothWays(t *testing.T) {
	eachMedium(t, func(t *testing.T, f *front) {
		conn := f.connect(t, "early")
		tun := f.next(t)
		if r := tun.req; r.Address != "node1:10250" || r.Protocol != "tcp" || r.Frontend != Name || !r.CanHalfClose || r.DialID != 7 {
			t.Errorf("request %+v", r)
		}
		if f.gauge.value() != 1 {
			t.Errorf("the gauge is %d during a CONNECT", f.gauge.value())
		}
		tun.establish(t)
		tun.send(t, "banner")
		if got := read(t, conn, len(successLine)+6); got != successLine+"banner" {
			t.Fatalf("client read %q", got)
		}
		write(t, conn, " and late")
		if got := tun.waitFor(t, 14); got != "early and late" {
			t.Errorf("tunnel got %q", got)
		}
		big := strings.Repeat("0123456789abcdef", 20000)
		go write(t, conn, big)
		if got := tun.waitFor(t, 14+len(big)); got[14:] != big {
			t.Error("a large write arrived changed")
		}
		parts := wire.PayloadOf(append(append(wire.CopyPayload([]byte(big)).Buffers(), wire.CopyPayload([]byte("-")).Buffers()...),
			wire.CopyPayload([]byte(big)).Buffers()...))
		go func() { _ = tun.f.Write(parts) }()
		if got := read(t, conn, 2*len(big)+1); got != big+"-"+big {
			t.Error("a payload of three buffers arrived changed")
		}
	})
}

func TestFailureIsAnsweredAndClosed(t *testing.T) {
	eachMedium(t, func(t *testing.T, f *front) {
		conn := f.connect(t, "early bytes that nobody reads")
		write(t, conn, strings.Repeat("more", 5000)) // unread input must not turn the answer into a reset
		f.next(t).fail(wire.ReasonNoAgent, "No agent available")
		got, err := rest(conn)
		if err != nil {
			t.Errorf("the end is %v", err)
		}
		if !strings.HasPrefix(got, "HTTP/1.1 503 No agent available\r\n") || !strings.HasSuffix(got, "\r\n\r\ncurrently no tunnels available: No agent available") {
			t.Errorf("answer %q", got)
		}
	})
}

func TestHalfCloseThenOrderlyEnd(t *testing.T) {
	eachMedium(t, func(t *testing.T, f *front) {
		conn, tun := f.open(t)
		write(t, conn, "question")
		if err := conn.(halfCloser).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		tun.expect(t, "half")
		tun.waitFor(t, 8)
		tun.send(t, "answer")
		tun.quiet(t)
		tun.f.Close(relay.End{})
		if got, err := rest(conn); got != "answer" || err != nil {
			t.Errorf("client read %q, %v", got, err)
		}
		eventually(t, "the socket is closed", func() bool { return f.Sessions() == 0 })
	})
}

func TestHalfCloseThenHangUp(t *testing.T) {
	for _, m := range []string{"unix", "tls"} {
		t.Run(m, func(t *testing.T) {
			f := newFront(t, m)
			conn, tun := f.open(t)
			conn.(halfCloser).CloseWrite()
			tun.expect(t, "half")
			conn.Close()
			tun.expect(t, "hangup", "close")
			tun.f.Close(relay.End{})
			eventually(t, "the socket is closed", func() bool { return f.Sessions() == 0 })
		})
	}
}

func TestEndpointHalfCloses(t *testing.T) {
	eachMedium(t, func(t *testing.T, f *front) {
		conn, tun := f.open(t)
		tun.send(t, "all")
		if err := tun.f.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := rest(conn); got != "all" || err != nil {
			t.Fatalf("client read %q, %v", got, err)
		}
		write(t, conn, "still speaking")
		tun.waitFor(t, 14)
		tun.quiet(t)
		tun.f.Close(relay.End{})
		eventually(t, "the socket is closed", func() bool { return f.Sessions() == 0 })
	})
}

// The client writes and closes at once while the endpoint is slow: the hang-up is
// told at once, the rest is still delivered, then the tunnel is closed.
func TestHangUpWithBytesLeft(t *testing.T) {
	for _, m := range []string{"unix", "tls"} {
		t.Run(m, func(t *testing.T) {
			f := newFront(t, m)
			conn, tun := f.open(t)
			stall := make(chan struct{})
			tun.mu.Lock()
			tun.stall = stall
			tun.mu.Unlock()
			text := strings.Repeat("x", 100_000)
			write(t, conn, text)
			conn.Close()
			tun.expect(t, "hangup")
			tun.quiet(t)
			if err := tun.f.Write(wire.CopyPayload([]byte("nobody reads this"))); err != nil {
				t.Errorf("writing to a client that hung up ends the tunnel: %v", err)
			}
			close(stall)
			tun.expect(t, "close")
			if got := tun.waitFor(t, len(text)); got != text {
				t.Errorf("%d bytes of %d were delivered", len(got), len(text))
			}
			tun.f.Close(relay.End{})
			eventually(t, "the socket is closed", func() bool { return f.Sessions() == 0 })
		})
	}
}

// A Unix client that closes without reading what it was sent has hung up; what
// it wrote is whole.
func TestHangUpWithUnreadOutput(t *testing.T) {
	f := newFront(t, "unix")
	conn, tun := f.open(t)
	tun.send(t, "a banner that is never read")
	write(t, conn, "request")
	conn.Close()
	tun.expect(t, "hangup", "close")
	if got := tun.waitFor(t, 7); got != "request" {
		t.Errorf("tunnel got %q", got)
	}
	tun.f.Close(relay.End{})
}

func TestHangUpDuringTheDialCancels(t *testing.T) {
	f := newFront(t, "unix")
	conn := f.connect(t, "x")
	tun := f.next(t)
	conn.Close()
	tun.expect(t, "cancel")
	tun.fail(wire.ReasonCanceled, "canceled")
	eventually(t, "the socket is closed", func() bool { return f.Sessions() == 0 })
}

func TestHalfCloseDuringTheDialDoesNot(t *testing.T) {
	eachMedium(t, func(t *testing.T, f *front) {
		conn := f.connect(t, "question")
		conn.(halfCloser).CloseWrite()
		tun := f.next(t)
		tun.establish(t)
		tun.expect(t, "half")
		tun.send(t, "answer")
		tun.f.Close(relay.End{})
		if got, err := rest(conn); got != successLine+"answer" || err != nil {
			t.Errorf("client read %q, %v", got, err)
		}
		if got := tun.waitFor(t, 8); got != "question" {
			t.Errorf("tunnel got %q", got)
		}
	})
}

// Over TCP a full close looks like a half-close: it does not cancel the dial. What
// is written to the client then tells, and what it sent before is delivered.
func TestFINDuringTheDialDoesNotCancel(t *testing.T) {
	for _, m := range []string{"tcp", "tls"} {
		t.Run(m, func(t *testing.T) {
			f := newFront(t, m)
			conn := f.connect(t, "question")
			tun := f.next(t)
			conn.Close()
			eventually(t, "the FIN is seen", func() bool { return finSeen(f.Server) })
			tun.quiet(t)
			tun.establish(t)
			tun.waitFor(t, 8)
			for e := ""; e != "close"; {
				e = <-tun.events
				if e == "abort" || e == "cancel" || (e == "half" && m == "tls") {
					t.Fatalf("event %q", e)
				}
			}
			tun.f.Close(relay.End{})
		})
	}
}

func finSeen(s *Server) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sess := range s.sessions {
		sess.mu.Lock()
		fin := sess.fin
		sess.mu.Unlock()
		return fin
	}
	return false
}

func TestResetAborts(t *testing.T) {
	for _, m := range []string{"tcp", "tls"} {
		for _, when := range []string{"during the dial", "after it"} {
			t.Run(m+" "+when, func(t *testing.T) {
				f := newFront(t, m)
				var conn net.Conn
				var tun *fakeTunnel
				if when == "after it" {
					conn, tun = f.open(t)
				} else {
					conn = f.connect(t, "")
					tun = f.next(t)
				}
				reset(t, conn)
				tun.expect(t, "abort")
				if when == "after it" {
					tun.f.Close(relay.End{Reason: wire.ReasonAborted})
				} else {
					tun.fail(wire.ReasonCanceled, "canceled")
				}
				eventually(t, "the socket is closed", func() bool { return f.Sessions() == 0 })
			})
		}
	}
}

func reset(t *testing.T, conn net.Conn) {
	t.Helper()
	if c, ok := conn.(*tls.Conn); ok {
		conn = c.NetConn()
	}
	if err := conn.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// A reset is noticed while the reader waits for a slow endpoint.
func TestResetWhileTheEndpointIsStuck(t *testing.T) {
	f := newFront(t, "tls")
	conn, tun := f.open(t)
	stall := make(chan struct{})
	tun.mu.Lock()
	tun.stall = stall
	tun.mu.Unlock()
	write(t, conn, "x")
	reset(t, conn)
	tun.expect(t, "abort")
	close(stall)
	tun.f.Close(relay.End{Reason: wire.ReasonAborted})
}

func TestOrderlyEndWithUnreadInput(t *testing.T) {
	eachMedium(t, func(t *testing.T, f *front) {
		conn, tun := f.open(t)
		tun.mu.Lock()
		tun.full = errors.New("the tunnel takes no more")
		tun.mu.Unlock()
		write(t, conn, strings.Repeat("ignored ", 10_000))
		tun.send(t, "last words")
		tun.f.Close(relay.End{})
		if got, err := rest(conn); got != "last words" || err != nil {
			t.Errorf("client read %q, %v", got, err)
		}
		conn.Close()
		eventually(t, "the socket is closed", func() bool { return f.Sessions() == 0 })
	})
}

// A client that does not close after the end is closed on.
func TestOrderlyEndOfAClientThatStays(t *testing.T) {
	eachMedium(t, func(t *testing.T, f *front) {
		conn, tun := f.open(t)
		tun.f.Close(relay.End{})
		if got, err := rest(conn); got != "" || err != nil {
			t.Errorf("client read %q, %v", got, err)
		}
		eventually(t, "the socket is closed", func() bool { return f.Sessions() == 0 })
	})
}
