package rig

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
)

// Kind is what an endpoint does with a connection.
type Kind string

// The kinds of endpoints. Connections of all that accept any, but of Source and
// Answer, behave alike once their first bytes are written: they read and check
// what comes, and close when its end has come.
const (
	Echo      Kind = "echo"       // writes back what it reads
	Banner    Kind = "banner"     // writes first
	Sink      Kind = "sink"       // reads
	Source    Kind = "source"     // writes, and ends its side
	Answer    Kind = "answer"     // writes when it has read the end
	Stuck     Kind = "stuck"      // never reads, until it is resumed
	Refusing  Kind = "refuses"    // accepts nothing
	BlackHole Kind = "black-hole" // does not even answer a dial
)

func kinds() []Kind {
	return []Kind{Echo, Banner, Sink, Source, Answer, Stuck, Refusing, BlackHole}
}

// endpoint is a listener behind the agents.
type endpoint struct {
	// Fixed after construction.
	cluster  *Cluster
	address  string
	kind     Kind
	size     int64 // of what it writes by itself
	listener *tunneltest.Listener

	accepted int // owned by accept
}

// AddEndpoint makes an endpoint that every agent can reach; see Route. size is
// how much it writes by itself.
func (c *Cluster) AddEndpoint(address string, kind Kind, size int64) error {
	if !slices.Contains(kinds(), kind) {
		return fmt.Errorf("there is no kind of endpoint %q", kind)
	}
	if err := c.free(address); err != nil {
		return err
	}
	p := &endpoint{cluster: c, address: address, kind: kind, size: size, listener: c.net.Listen(address)}
	c.endpoints[address] = p
	switch kind {
	case Refusing:
		p.listener.SetMode(tunneltest.Refusing)
	case BlackHole:
		c.net.ShapeBoth("", address, tunneltest.Shape{Stall: true})
	}
	go p.accept()
	return nil
}

func (p *endpoint) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return // the listener is closed
		}
		p.accepted++
		p.serve(conn, fmt.Sprintf("%s#%d", p.address, p.accepted))
	}
}

// serve makes an End of a connection.
func (p *endpoint) serve(conn net.Conn, name string) {
	e := newEnd(p.cluster.journal, name)
	e.from, _, _ = strings.Cut(conn.RemoteAddr().String(), ":")
	e.echo = p.kind == Echo
	if p.kind == Stuck {
		e.limit = 0
	}
	p.cluster.mu.Lock()
	p.cluster.ends[name] = e
	p.cluster.mu.Unlock()
	p.cluster.journal.add(name, "from %s", e.from)
	switch p.kind {
	case Banner:
		_ = e.Write(p.size) // the first of its jobs
	case Source:
		_ = e.Write(p.size)
		_ = e.HalfClose()
	case Answer:
		e.answer = p.size
	}
	e.start(newPlain(conn, conn))
}
