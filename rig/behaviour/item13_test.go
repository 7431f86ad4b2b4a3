package behaviour

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-proxy/culvert/rig/process"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// transferTime is how long the transfer lasts that a stopping process must wait
// for: longer than an agent's lame-duck time (5 s).
const transferTime = 6 * time.Second

// slowTransfer is a tunnel that carries its own bytes both ways, a piece at a
// time, from the moment on when begun is closed.
type slowTransfer struct {
	begun chan struct{}
	done  chan error // both ends, the client's last word
	ended atomic.Int64
}

const (
	seedSlowUp, seedSlowDown = 20, 21
	pieces                   = 60
	pieceSize                = 16 << 10
)

// startSlow starts the transfer through f.
func startSlow(t testing.TB, f *front) *slowTransfer {
	t.Helper()
	x := &slowTransfer{begun: make(chan struct{}), done: make(chan error, 2)}
	e := newEndpoint(t, func(_ *endpoint, c *net.TCPConn) {
		x.done <- x.run("endpoint", c, seedSlowDown, seedSlowUp)
		// Behind the last byte in both directions; run has half-closed.
	})
	c := f.mustDial(t, e.addr)
	c.SetDeadline(time.Now().Add(hang))
	go func() {
		defer c.Close()
		x.done <- x.run("client", c, seedSlowUp, seedSlowDown)
	}()
	return x
}

// run is one end: it sends pieces, half-closes, and checks what it gets to the
// orderly end.
func (x *slowTransfer) run(who string, c interface {
	io.ReadWriter
	CloseWrite() error
}, send, receive uint64) error {
	wrote := make(chan error, 1)
	go func() {
		tick := time.NewTicker(transferTime / pieces)
		defer tick.Stop()
		from := source(send)
		for i := range pieces {
			if _, err := io.CopyN(c, from, pieceSize); err != nil {
				wrote <- fmt.Errorf("%s: piece %d: %w", who, i, err)
				return
			}
			if i == 0 && who == "client" {
				close(x.begun)
			}
			<-tick.C
		}
		wrote <- c.CloseWrite()
	}()
	got := take(c)
	x.ended.Store(time.Now().UnixNano())
	if err := got.begins(receive, pieces*pieceSize); err != nil {
		return fmt.Errorf("%s: %w", who, err)
	}
	if got.err != nil {
		return fmt.Errorf("%s: the end: %w", who, got.err)
	}
	return <-wrote
}

// finish waits for both ends and returns when the later of them had all.
func (x *slowTransfer) finish(t testing.TB) time.Time {
	t.Helper()
	for range 2 {
		if err := <-x.done; err != nil {
			t.Error(err)
		}
	}
	return time.Unix(0, x.ended.Load())
}

// One SIGTERM to an agent in the middle of a transfer, the only agent there is:
// for its lame-duck time it still serves dials, the transfer finishes, and then
// it is gone.
func TestBehaviour13AgentStopped(t *testing.T) {
	atOnce(t, func(t *testing.T, k kind) {
		s := newStand(t, k, standOptions{ids: []string{""}})
		x := startSlow(t, s.front)
		<-x.begun
		s.agents[0].Signal(unix.SIGTERM)
		s.drained(1)
		c := s.mustDial(t, newEndpoint(t, echo).addr)
		ping(t, c)
		c.Close()
		end := x.finish(t)
		if ended(s.agents[0].Process) && time.Since(end) < 0 {
			t.Error("the agent ended before the transfer")
		}
		if status := s.agents[0].Exit(hang); status != 0 {
			t.Errorf("exit status %d", status)
		}
		within(t, end, time.Second, "the agent's end behind the transfer")
		s.quiet()
	})
}

// drained waits until the server knows that n links drain.
func (s *stand) drained(n int) {
	s.t.Helper()
	process.Eventually(s.t, hang, "the server hears of the drain", func() bool {
		return s.server.Metric(`culvert_server_agent_links{state="draining"}`) == float64(n)
	})
}

// One SIGTERM to a server with a graceful timeout: it is not ready any more and
// takes nobody new; the transfer finishes, and then it is gone.
func TestBehaviour13ServerStopped(t *testing.T) {
	atOnce(t, func(t *testing.T, k kind) {
		s := newStand(t, k, standOptions{ids: []string{""}, server: []string{"--graceful-shutdown-timeout=30s"}})
		x := startSlow(t, s.front)
		<-x.begun
		s.server.Signal(unix.SIGTERM)
		process.Eventually(t, hang, "the server is not ready any more", func() bool {
			status, _, err := process.Get(s.server.Health + "/readyz")
			return err == nil && status == http.StatusInternalServerError
		})
		late, err := s.dial(refusedPort(t))
		if err == nil {
			late.Close()
			t.Error("a dial succeeded where nobody listens")
		} else if strings.Contains(err.Error(), "connection refused") && strings.Contains(err.Error(), "502") {
			t.Errorf("a stopping server asked an agent: %v", err)
		}
		end := x.finish(t)
		if status := s.server.Exit(hang); status != 0 {
			t.Errorf("exit status %d", status)
		}
		within(t, end, time.Second, "the server's end behind the transfer")
		s.quiet()
	})
}

// A client that reads slowly has its last bytes somewhere between the server and
// itself when nothing of its tunnel is left in the relay: the server waits for it.
func TestBehaviour13ServerStoppedBeforeTheLastBytesAreRead(t *testing.T) {
	atOnce(t, func(t *testing.T, k kind) {
		s := newStand(t, k, standOptions{ids: []string{""}, server: []string{"--graceful-shutdown-timeout=30s"}})
		// The most that a tunnel can carry to its end while its client reads nothing:
		// buffers on the way hold so much.
		const step = 16 << 10
		fits, tooMuch := int64(step), int64(2<<20)
		for tooMuch-fits > step {
			size := (fits + tooMuch) / 2
			c, over := s.unread(size)
			if over {
				fits = size
			} else {
				tooMuch = size
			}
			s.readAll(c, size)
		}
		c, over := s.unread(fits)
		t.Logf("%d bytes fit; the tunnel is over: %v", fits, over)
		s.server.Signal(unix.SIGTERM)
		after(1500 * time.Millisecond) // in which it must not cut the client off
		s.readAll(c, fits)
		end := time.Now()
		if status := s.server.Exit(hang); status != 0 {
			t.Errorf("exit status %d", status)
		}
		within(t, end, time.Second, "the server's end behind the last byte")
		s.quiet()
	})
}

const seedUnread = 30

// unread opens a tunnel on which the endpoint sends so many bytes, and says whether
// it comes to its end in the server although its client does not read.
func (s *stand) unread(size int64) (tunnel, bool) {
	s.t.Helper()
	const closed = `culvert_server_tunnels_closed_total{reason="none"}`
	before := s.server.Metric(closed)
	c := s.mustDial(s.t, newEndpoint(s.t, func(_ *endpoint, c *net.TCPConn) { give(c, seedUnread, size) }).addr)
	if err := c.CloseWrite(); err != nil {
		s.t.Fatal(err)
	}
	return c, process.Within(300*time.Millisecond, func() bool { return s.server.Metric(closed) > before })
}

// readAll reads what unread has sent, and the orderly end.
func (s *stand) readAll(c tunnel, size int64) {
	s.t.Helper()
	defer c.Close()
	c.SetDeadline(time.Now().Add(hang))
	got := take(c)
	if err := got.begins(seedUnread, size); err != nil {
		s.t.Error(err)
	} else if got.err != nil {
		s.t.Errorf("behind %d bytes: the end: %v", size, got.err)
	}
}

// One SIGTERM to a server without a graceful timeout: clients get their answer,
// and it is gone within 5 s.
func TestBehaviour13ServerStoppedAtOnce(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		s := newStand(t, k, standOptions{ids: []string{""}})
		e := newEndpoint(t, neverCloses)
		c := s.mustDial(t, e.addr)
		defer c.Close()
		c.SetDeadline(time.Now().Add(hang))
		process.Eventually(t, hang, "the endpoint has its connection", func() bool { return e.live() == 1 })
		since := time.Now()
		s.server.Signal(unix.SIGTERM)
		if err := notAbnormal(k, take(c).err, wire.ReasonShutdown); err != nil {
			t.Error(err)
		}
		if status := s.server.Exit(hang); status != 0 {
			t.Errorf("exit status %d", status)
		}
		within(t, since, 5*time.Second, "the server's end")
		process.Eventually(t, hang, "the endpoint's socket is closed", func() bool { return e.live() == 0 })
		s.quiet()
	})
}

// 100 dials a second through two agents, one of which is stopped meanwhile: not
// one is lost.
func TestBehaviour13NothingLostWhileAnAgentStops(t *testing.T) {
	atOnce(t, func(t *testing.T, k kind) {
		s := newStand(t, k, standOptions{ids: []string{"leaves", "stays"}})
		e := newEndpoint(t, echo)
		l := startLoad(s.front, e.addr, time.Second/100)
		l.await(t, 50)
		s.agents[0].Signal(unix.SIGTERM)
		s.drained(1)
		if status := s.agents[0].Exit(hang); status != 0 {
			t.Errorf("exit status %d", status)
		}
		l.await(t, l.count()+50)
		l.stop(t)
		for i, name := range []string{"one that leaves", "one that stays"} {
			if i == 1 && s.agents[i].Metric(agentDials) == 0 {
				t.Errorf("the %s served nothing", name)
			}
		}
		s.quiet()
	}, scaled([]kind{connectUDS, grpcReusable}, kinds())...)
}

// load is a steady rate of short tunnels to an echo.
type load struct {
	quit    chan struct{}
	workers sync.WaitGroup

	mu     sync.Mutex
	done   int
	failed []error
}

func startLoad(f *front, address string, every time.Duration) *load {
	l := &load{quit: make(chan struct{})}
	l.workers.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-l.quit:
				return
			case <-tick.C:
				l.workers.Go(func() { l.record(short(f, address)) })
			}
		}
	})
	return l
}

// short is a tunnel with a few bytes, from dial to the echo's own end.
func short(f *front, address string) error {
	c, err := f.dial(address)
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	if err := tryPing(c, hang); err != nil {
		c.Close()
		return err
	}
	return closeWhole(c)
}

// closeWhole half-closes a tunnel to an echo, and closes it behind the echo's end.
func closeWhole(c tunnel) error {
	defer c.Close()
	if err := c.CloseWrite(); err != nil {
		return fmt.Errorf("half-close: %w", err)
	}
	c.SetDeadline(time.Now().Add(hang))
	return expectEOF(c)
}

func (l *load) record(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done++
	if err != nil {
		l.failed = append(l.failed, fmt.Errorf("number %d: %w", l.done, err))
	}
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done
}

func (l *load) await(t testing.TB, n int) {
	t.Helper()
	process.Eventually(t, hang, fmt.Sprintf("%d tunnels", n), func() bool { return l.count() >= n })
}

// stop ends the load and fails the test if any tunnel of it failed.
func (l *load) stop(t testing.TB) {
	t.Helper()
	close(l.quit)
	l.workers.Wait()
	if len(l.failed) > 0 {
		t.Errorf("%d of %d tunnels failed, the first with: %v", len(l.failed), l.done, l.failed[0])
	}
}
