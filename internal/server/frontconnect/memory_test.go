package frontconnect

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/internal/server/relay"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// pipes is a listener of connections in memory, as a rig uses them.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	select {
	case <-p.done:
	default:
		close(p.done)
	}
	return nil
}

func (p *pipes) Addr() net.Addr { return pipeAddr{} }

func (p *pipes) dial() net.Conn {
	here, there := net.Pipe()
	p.conns <- there
	return here
}

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

// inMemory runs test in a bubble of fake time with a frontend on pipes.
func inMemory(t *testing.T, cfg *tls.Config, test func(t *testing.T, s *Server, r *fakeRelay, p *pipes)) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRelay{opened: make(chan *fakeTunnel, 10)}
		s := newServer(Config{}, r, nil)
		p := newPipes()
		served := make(chan error, 1)
		var l net.Listener = p
		if cfg != nil {
			l = Listener(p, cfg)
		}
		go func() { served <- s.Serve(l) }()
		test(t, s, r, p)
		s.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := s.Sessions(); n != 0 {
			t.Errorf("%d sessions are left", n)
		}
	})
}

func TestASilentClientIsClosedOn(t *testing.T) {
	inMemory(t, nil, func(t *testing.T, s *Server, _ *fakeRelay, p *pipes) {
		conn := p.dial()
		start := time.Now()
		if _, err := io.ReadAll(conn); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d != readHeaderTimeout {
			t.Errorf("a client that sends no head was closed on after %v", d)
		}
	})
}

func TestDrainingIsBounded(t *testing.T) {
	inMemory(t, nil, func(t *testing.T, s *Server, r *fakeRelay, p *pipes) {
		conn := p.dial()
		write(t, conn, request("a:1"))
		tun := <-r.opened
		go tun.establish(t)
		read(t, conn, len(successLine))
		start := time.Now()
		tun.f.Close(relay.End{})
		if _, err := io.ReadAll(conn); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d != drainQuiet {
			t.Errorf("a client that stays was closed on after %v", d)
		}
	})
}

// A client that never takes its failure answer does not hold its session.
func TestAnswerToAClientThatDoesNotRead(t *testing.T) {
	inMemory(t, nil, func(t *testing.T, s *Server, r *fakeRelay, p *pipes) {
		conn := p.dial()
		write(t, conn, request("a:1"))
		tun := <-r.opened
		start := time.Now()
		tun.fail(wire.ReasonNoAgent, "No agent available")
		if d := time.Since(start); d != answerTimeout {
			t.Errorf("the answer was given up after %v", d)
		}
		<-time.After(drainQuiet)
		synctest.Wait()
		if s.Sessions() != 0 {
			t.Error("the session is still there")
		}
		conn.Close()
	})
}

// Without half-close, as on a pipe, EOF is a full close.
func TestEOFOnAPipeIsAHangUp(t *testing.T) {
	inMemory(t, nil, func(t *testing.T, s *Server, r *fakeRelay, p *pipes) {
		conn := p.dial()
		write(t, conn, request("a:1"))
		tun := <-r.opened
		if tun.req.CanHalfClose {
			t.Error("a pipe cannot half-close")
		}
		go tun.establish(t)
		read(t, conn, len(successLine))
		conn.Close()
		tun.expect(t, "hangup", "close")
		tun.f.Close(relay.End{})
	})
}

// TLS in memory: close_notify is half, the end of the stream beneath is full.
func TestCloseNotifyThenEOFInMemory(t *testing.T) {
	server, client := tlsPair(t)
	inMemory(t, server, func(t *testing.T, s *Server, r *fakeRelay, p *pipes) {
		conn := tls.Client(p.dial(), client)
		write(t, conn, request("a:1"))
		tun := <-r.opened
		go tun.establish(t)
		read(t, conn, len(successLine))
		if err := conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		tun.expect(t, "half")
		go tun.send(t, "answer")
		read(t, conn, 6)
		synctest.Wait()
		tun.quiet(t)
		conn.NetConn().Close()
		tun.expect(t, "hangup", "close")
		tun.f.Close(relay.End{})
	})
}
