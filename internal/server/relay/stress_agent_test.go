package relay

import (
	"math/rand/v2"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// script makes a behave like an agent with endpoints that do anything.
func (s *stress) script(a *fakeAgent, rng *rand.Rand) {
	last := wire.ConnectionID(0)
	live := map[wire.ConnectionID]*stressConn{}
	a.onPacket = func(pk wire.Packet) { // on the reader's goroutine
		switch pk.Type {
		case wire.DialRequest:
			last++
			s.dialled(a, rand.New(rand.NewPCG(rng.Uint64(), 4)), pk, last, live)
		case wire.CloseRequest:
			if c := live[pk.ConnectionID]; c != nil {
				c.finish(wire.Packet{Type: wire.CloseResponse, ConnectionID: c.id}, false)
				return
			}
			a.packet(wire.Packet{Type: wire.CloseResponse, ConnectionID: pk.ConnectionID, Error: "Unknown connectID"})
		}
	}
}

// dialled answers a dial, or does not.
func (s *stress) dialled(a *fakeAgent, rng *rand.Rand, pk wire.Packet, id wire.ConnectionID, live map[wire.ConnectionID]*stressConn) {
	rsp := wire.Packet{Type: wire.DialResponse, DialID: pk.DialID}
	verdict := rng.IntN(20)
	c := &stressConn{agent: a, id: id, window: pk.Window, half: pk.CanHalfClose, key: byte(rng.Uint32())}
	if verdict >= 5 {
		rsp.ConnectionID, rsp.Window = id, int64(rng.IntN(100<<10))
		if a.ext == 0 {
			rsp.Window = 0
		}
		live[id] = c
		s.mu.Lock()
		s.conns[connKey(a.peer, id)] = c
		s.mu.Unlock()
	}
	switch verdict {
	case 0, 1:
		rsp.Error = "connect: connection refused"
	case 2, 3:
		rsp.Error = "connect: no route to host"
	case 4:
		return // silence
	}
	s.wait.Go(func() {
		s.sleep(rng, 20)
		a.packet(rsp)
		if rsp.ConnectionID != 0 {
			s.wait.Go(func() { s.consume(c, rsp.Window) })
			s.endpoint(rng, c)
		}
	})
}

// consume grants credit for what has arrived, until the connection is over.
func (s *stress) consume(c *stressConn, granted int64) {
	for range 3000 {
		timer := time.NewTimer(50 * time.Millisecond)
		<-timer.C
		c.mu.Lock()
		quit := c.quit
		c.mu.Unlock()
		c.agent.mu.Lock()
		got, lost := int64(len(c.agent.got[c.id])), c.agent.lost
		c.agent.mu.Unlock()
		if quit || lost {
			return
		}
		if c.agent.ext.Has(wire.ExtCredit) && granted < got+32<<10 {
			granted += 64 << 10
			c.agent.packet(wire.Packet{Type: wire.Credit, ConnectionID: c.id, Window: 64 << 10})
		}
	}
}

// endpoint sends data within its credit, and may end the connection.
func (s *stress) endpoint(rng *rand.Rand, c *stressConn) {
	for range rng.IntN(20) {
		s.send(c, 1+rng.IntN(32<<10))
		if rng.IntN(3) == 0 {
			s.sleep(rng, 30)
		}
	}
	s.sleep(rng, 3000)
	switch verdict := rng.IntN(8); {
	case verdict < 3:
		c.finish(wire.Packet{Type: wire.CloseResponse, ConnectionID: c.id}, true)
	case verdict < 5 && c.half:
		c.agent.packet(wire.Packet{Type: wire.HalfClose, ConnectionID: c.id})
	case verdict == 5:
		c.finish(wire.Packet{Type: wire.CloseResponse, ConnectionID: c.id, Reason: wire.ReasonReset}, false)
	case verdict == 6 && c.window > 0:
		for range 600 { // far more than its credit
			c.mu.Lock()
			c.down(32 << 10)
			c.mu.Unlock()
		}
	}
}

// send sends n bytes if the credit allows.
func (s *stress) send(c *stressConn, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.agent.ext.Has(wire.ExtCredit) {
		c.agent.mu.Lock()
		credit := c.window + c.agent.grants[c.id] - int64(c.sent)
		c.agent.mu.Unlock()
		n = min(n, int(credit))
	}
	c.down(n)
}

// down sends n bytes. mu is held.
func (c *stressConn) down(n int) {
	if n <= 0 || c.quit {
		return
	}
	p := wire.CopyPayload(stream(c.key, c.sent, n))
	c.agent.packet(wire.Packet{Type: wire.Data, ConnectionID: c.id, Payload: p})
	c.sent += n
}

// finish says pk, unless the connection is over already.
func (c *stressConn) finish(pk wire.Packet, inOrder bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.quit {
		pk = wire.Packet{Type: wire.CloseResponse, ConnectionID: c.id, Error: "Unknown connectID"}
		inOrder = c.closed
	}
	c.quit, c.closed = true, inOrder
	if c.agent.ext == 0 {
		pk.Reason = 0
	}
	c.agent.packet(pk)
}
