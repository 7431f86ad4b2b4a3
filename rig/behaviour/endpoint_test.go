package behaviour

import (
	"io"
	"net"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// endpoint is a TCP server on loopback, in the test's process.
type endpoint struct {
	addr     string
	listener net.Listener
	handlers sync.WaitGroup
	over     chan struct{} // closed when the endpoint ends

	mu       sync.Mutex
	conns    map[*net.TCPConn]bool
	accepted int
}

// newEndpoint serves each connection with serve, and closes it when that returns.
// The end of the test closes what is left and waits for serve.
func newEndpoint(t testing.TB, serve func(e *endpoint, c *net.TCPConn)) *endpoint {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &endpoint{addr: listener.Addr().String(), listener: listener, over: make(chan struct{}), conns: map[*net.TCPConn]bool{}}
	go e.accept(serve)
	t.Cleanup(e.close)
	return e
}

func (e *endpoint) accept(serve func(e *endpoint, c *net.TCPConn)) {
	for {
		conn, err := e.listener.Accept()
		if err != nil {
			return
		}
		c := conn.(*net.TCPConn)
		if !e.add(c) {
			c.Close()
			return
		}
		go func() {
			defer e.handlers.Done()
			defer e.remove(c)
			serve(e, c)
		}()
	}
}

func (e *endpoint) add(c *net.TCPConn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-e.over:
		return false
	default:
	}
	e.conns[c] = true
	e.accepted++
	e.handlers.Add(1)
	return true
}

func (e *endpoint) remove(c *net.TCPConn) {
	e.mu.Lock()
	delete(e.conns, c)
	e.mu.Unlock()
	c.Close()
}

func (e *endpoint) close() {
	e.listener.Close()
	e.mu.Lock()
	select {
	case <-e.over:
	default:
		close(e.over)
	}
	for c := range e.conns {
		c.SetLinger(0)
		c.Close()
	}
	e.mu.Unlock()
	e.handlers.Wait()
}

// count is the number of connections that were ever accepted.
func (e *endpoint) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.accepted
}

// open is the number of connections that this side has not closed.
func (e *endpoint) open() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.conns)
}

// live is the number of connections that neither side has closed, as the kernel
// sees it: the agent's FIN or reset has not arrived.
func (e *endpoint) live() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for c := range e.conns {
		if alive(c) {
			n++
		}
	}
	return n
}

// tcpEstablished is the kernel's number of that state (include/net/tcp_states.h).
const tcpEstablished = 1

func alive(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	is := false
	err = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		is = err == nil && info.State == tcpEstablished
	})
	return err == nil && is
}

// unsent is what the kernel holds of what c wrote: the other side's kernel has
// not acknowledged it.
func unsent(c *net.TCPConn) int {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ) })
	return n
}

// echo sends back what it gets, and closes after EOF.
func echo(_ *endpoint, c *net.TCPConn) {
	io.Copy(c, c)
}

// neverCloses reads all there is and then holds its socket until the test ends.
func neverCloses(e *endpoint, c *net.TCPConn) {
	io.Copy(io.Discard, c)
	<-e.over
}

// neverReads does nothing at all until the test ends.
func neverReads(e *endpoint, _ *net.TCPConn) { <-e.over }
