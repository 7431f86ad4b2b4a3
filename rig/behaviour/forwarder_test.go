package behaviour

import (
	"io"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/culvert-proxy/culvert/rig/process"
)

// forwarder is a piece of network between agents and a server: it can lose what
// one of them still believes in.
type forwarder struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu    sync.Mutex
	pairs []*forwarded
	over  bool
}

// forwarded is one connection through it: near is the agent's, far the server's.
type forwarded struct {
	near, far *net.TCPConn
	orphaned  bool // near is gone and far does not hear of it
}

// newForwarder forwards to the agents' port of a server.
func newForwarder(t testing.TB, s *process.Server) *forwarder {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &forwarder{listener: listener, target: net.JoinHostPort(s.Host, strconv.Itoa(s.Agents))}
	f.running.Go(f.accept)
	t.Cleanup(f.close)
	return f
}

// asServer is what an agent takes for the server.
func (f *forwarder) asServer() *process.Server {
	return &process.Server{Host: "127.0.0.1", Agents: f.listener.Addr().(*net.TCPAddr).Port}
}

func (f *forwarder) accept() {
	for {
		near, err := f.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", f.target)
		if err != nil {
			near.Close()
			continue
		}
		p := &forwarded{near: near.(*net.TCPConn), far: far.(*net.TCPConn)}
		f.mu.Lock()
		f.pairs = append(f.pairs, p)
		over := f.over
		f.mu.Unlock()
		if over {
			f.shut(p)
		}
		f.running.Go(func() { f.carry(p, p.far, p.near) })
		f.running.Go(func() { f.carry(p, p.near, p.far) })
	}
}

func (f *forwarder) carry(p *forwarded, to, from *net.TCPConn) {
	io.Copy(to, struct{ io.Reader }{from})
	f.mu.Lock()
	orphaned := p.orphaned
	f.mu.Unlock()
	if !orphaned {
		f.shut(p)
	}
}

func (f *forwarder) shut(p *forwarded) {
	p.near.Close()
	p.far.Close()
}

// orphan resets the agents' connections. To the server they still look open, and
// stay silent.
func (f *forwarder) orphan() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.pairs {
		p.orphaned = true
		p.near.SetLinger(0)
		p.near.Close()
	}
}

func (f *forwarder) close() {
	f.listener.Close()
	f.mu.Lock()
	f.over = true
	for _, p := range f.pairs {
		f.shut(p)
	}
	f.mu.Unlock()
	f.running.Wait()
}
