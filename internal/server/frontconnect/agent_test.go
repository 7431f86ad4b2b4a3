package frontconnect

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/culvert-proxy/culvert/internal/server/relay"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// agent plays the agent behind the real relay: it dials the endpoints itself,
// without a link between.
type agent struct {
	peer *relay.Peer
	wg   sync.WaitGroup

	packets sync.Mutex // held while the peer is given a packet: there is one reader

	mu    sync.Mutex
	last  wire.ConnectionID
	conns map[wire.ConnectionID]*agentConn
}

// agentConn is one endpoint connection and the relay's sender toward it.
type agentConn struct {
	agent *agent
	id    wire.ConnectionID
	tcp   *net.TCPConn

	mu      sync.Mutex
	deaf    bool // what the endpoint says is thrown away
	aborted bool
	done    int64
}

// newRelay is a relay with one agent.
func newRelay(t *testing.T) (*relay.Relay, *agent) {
	t.Helper()
	a := &agent{conns: map[wire.ConnectionID]*agentConn{}}
	r := relay.New(relay.Config{}, a, nil)
	a.peer = r.Attach(a, relay.PeerInfo{AgentID: "agent"})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hangLimit)
		defer cancel()
		if err := r.Shutdown(ctx, relay.End{}); err != nil {
			t.Errorf("%d tunnels and %d dials are left", r.Tunnels(), r.Pending())
		}
		a.peer.Lost(errors.New("the test is over"))
		for id := range a.open() {
			a.conn(id).abort()
		}
		a.wg.Wait()
	})
	return r, a
}

// Pick implements relay.Router.
func (a *agent) Pick(_ string, skip func(*relay.Peer) bool) (*relay.Peer, bool) {
	return a.peer, !skip(a.peer)
}

func (a *agent) conn(id wire.ConnectionID) *agentConn {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.conns[id]
}

// open lists the connections that are open.
func (a *agent) open() map[wire.ConnectionID]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	ids := map[wire.ConnectionID]bool{}
	for id := range a.conns {
		ids[id] = true
	}
	return ids
}

// The methods of relay.Outlet.

func (a *agent) Extensions() wire.Extensions                          { return wire.ExtHalfClose | wire.ExtReason }
func (a *agent) Grant(wire.ConnectionID, int64)                       {}
func (a *agent) MinRTT() time.Duration                                { return 0 }
func (a *agent) Kill(error)                                           {}
func (a *agent) NewSender(id wire.ConnectionID, _ int64) relay.Sender { return a.conn(id) }

func (a *agent) Send(p wire.Packet) {
	switch p.Type {
	case wire.DialRequest:
		a.wg.Go(func() { a.dial(p) })
	case wire.CloseRequest:
		if c := a.conn(p.ConnectionID); c != nil {
			c.abort()
		}
	}
}

func (a *agent) dial(p wire.Packet) {
	conn, err := net.Dial("tcp", p.Address)
	if err != nil {
		a.tell(a.peer.DialResponse, wire.Packet{Type: wire.DialResponse, DialID: p.DialID, Error: err.Error()})
		return
	}
	c := &agentConn{agent: a, tcp: conn.(*net.TCPConn)}
	a.mu.Lock()
	a.last++
	c.id = a.last
	a.conns[c.id] = c
	a.mu.Unlock()
	a.tell(a.peer.DialResponse, wire.Packet{Type: wire.DialResponse, DialID: p.DialID, ConnectionID: c.id})
	c.read()
}

func (a *agent) tell(method func(wire.Packet), p wire.Packet) {
	a.packets.Lock()
	defer a.packets.Unlock()
	method(p)
}

// read passes on what the endpoint says, to its end.
func (c *agentConn) read() {
	buf := make([]byte, 32<<10)
	var err error
	for err == nil {
		var n int
		n, err = c.tcp.Read(buf)
		if n > 0 && !c.isDeaf() {
			c.agent.tell(c.agent.peer.Data, wire.Packet{Type: wire.Data, ConnectionID: c.id, Payload: wire.CopyPayload(buf[:n])})
		}
	}
	end := wire.Packet{Type: wire.CloseResponse, ConnectionID: c.id}
	if !errors.Is(err, io.EOF) {
		end.Reason = wire.ReasonReset
	}
	c.tcp.Close()
	c.agent.mu.Lock()
	delete(c.agent.conns, c.id)
	c.agent.mu.Unlock()
	c.agent.tell(c.agent.peer.CloseResponse, end)
}

func (c *agentConn) isDeaf() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deaf
}

func (c *agentConn) abort() {
	c.mu.Lock()
	c.deaf, c.aborted = true, true
	c.mu.Unlock()
	c.tcp.SetLinger(0)
	c.tcp.Close()
}

// The methods of relay.Sender.

func (c *agentConn) Write(p wire.Payload) error {
	defer p.Free()
	n, err := c.tcp.Write(p.Bytes())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done += int64(n)
	if c.aborted {
		return net.ErrClosed
	}
	return err
}

func (c *agentConn) AddCredit(int64) error { return nil }

func (c *agentConn) Finish(p wire.Packet) {
	if p.Type == wire.CloseRequest {
		c.mu.Lock()
		c.deaf = true
		c.mu.Unlock()
	}
	c.tcp.CloseWrite()
}

func (c *agentConn) Abort(p *wire.Packet) {
	c.tcp.SetWriteDeadline(time.Unix(1, 0))
	if p != nil {
		c.abort()
	}
}

func (c *agentConn) Queued() int64 { return 0 }

func (c *agentConn) Progress() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done
}

// endpoint accepts TCP connections and gives each to serve in a goroutine. At the
// end it waits for all of them.
func endpoint(t *testing.T, serve func(c *net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				serve(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}
