package behaviour

import (
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/culvert-proxy/culvert/rig/process"
)

// blocked is a tunnel in which a direction has come to a standstill, because its
// reader reads nothing.
type blocked struct {
	tunnel
	e       *endpoint
	written *atomic.Int64
}

// settledFor is how long a writer makes no progress before it is called stuck.
const settledFor = 400 * time.Millisecond

// blockUp writes to an endpoint that never reads, until no more goes.
//
// A client over TCP whose own kernel holds bytes that the server has no room for
// cannot tell the server that it closes: its FIN stands behind them. So for
// CONNECT over TLS, where a FIN is all that an orderly close is, a client that is
// to close later stops writing when the tunnel is stuck further on and its own
// socket is empty.
func (s *stage) blockUp(t *testing.T, toClose bool) *blocked {
	t.Helper()
	b := &blocked{e: newEndpoint(t, neverReads), written: new(atomic.Int64)}
	b.tunnel = s.mustDial(t, b.e.addr)
	if s.kind == connectTLS && toClose {
		s.fill(t, b)
		return b
	}
	go flood(b.tunnel, b.written)
	b.awaitStandstill(t)
	return b
}

// fill writes in steps until the agent has had bytes for a while that it cannot
// get rid of.
func (s *stage) fill(t *testing.T, b *blocked) {
	t.Helper()
	const held = 320 << 10 // more than the agent grants at first, less than the server and its kernel take beyond that
	socket := b.tunnel.(*connectConn).raw.(*net.TCPConn)
	before := s.up(t)
	for lag := int64(0); lag < held; {
		b.tunnel.Write(bytesOf(1, chunk))
		b.written.Add(chunk)
		settled(settledFor, func() string {
			if lag = b.written.Load() - (s.up(t) - before); lag > 0 {
				return "on its way"
			}
			return ""
		})
	}
	settle(t, hang, func() string {
		if n := unsent(socket); n > 0 {
			return fmt.Sprintf("%d bytes are in the client's own socket", n)
		}
		return ""
	})
}

// up is what the agent has written to endpoints.
func (s *stage) up(t *testing.T) int64 {
	t.Helper()
	metrics, err := process.Scrape(s.agent.Health + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	return int64(metrics[`culvert_agent_relayed_bytes_total{direction="up"}`])
}

// blockDown lets an endpoint write to a client that never reads, until no more
// goes. The endpoint gives up when its writes fail or it reads EOF.
func (s *stage) blockDown(t *testing.T) *blocked {
	t.Helper()
	b := &blocked{written: new(atomic.Int64)}
	b.e = newEndpoint(t, func(_ *endpoint, c *net.TCPConn) {
		go flood(c, b.written)
		io.Copy(io.Discard, c)
	})
	b.tunnel = s.mustDial(t, b.e.addr)
	b.awaitStandstill(t)
	return b
}

func flood(w io.Writer, written *atomic.Int64) {
	block := bytesOf(1, chunk)
	for {
		n, err := w.Write(block)
		written.Add(int64(n))
		if err != nil {
			return
		}
	}
}

func (b *blocked) awaitStandstill(t *testing.T) {
	t.Helper()
	last, since := int64(-1), time.Now()
	settle(t, hang, func() string {
		if n := b.written.Load(); n == 0 || n != last {
			last, since = n, time.Now()
			return fmt.Sprintf("the writer still writes after %d bytes", n)
		}
		if time.Since(since) < settledFor {
			return "not at a standstill for long"
		}
		return ""
	})
}

// awaitFreed waits until the agent has closed its socket to the endpoint.
func (b *blocked) awaitFreed(t *testing.T, limit time.Duration, what string) {
	t.Helper()
	begin := time.Now()
	settle(t, limit+grace, func() string {
		if n := b.e.live(); n > 0 {
			return what + ": the endpoint's socket is still connected"
		}
		return ""
	})
	t.Logf("%s: free after %v", what, time.Since(begin).Round(time.Millisecond))
}

// TestBehaviour03StuckNeighbours: tunnels that are stuck, in either direction, do
// nothing to others through the same agent, old and new; aborting them frees
// their endpoints at once, and so does closing them, once they have been stuck
// for 5 s.
func TestBehaviour03StuckNeighbours(t *testing.T) {
	eachKindAtOnce(t, func(t *testing.T, k kind) {
		o := options{server: []string{"--close-timeout=10m"}, agent: []string{"--close-timeout=10m"}}
		o.client.CloseTimeout = 10 * time.Minute
		s := newStage(t, k, o)
		neighbours := newEndpoint(t, echo)
		old := s.mustDial(t, neighbours.addr)
		defer old.Close()
		before := roundTrips(t, old, 100)

		var up, down []*blocked
		for i := range 4 {
			up, down = append(up, s.blockUp(t, i > 0)), append(down, s.blockDown(t))
		}
		during := roundTrips(t, old, 100)
		t.Logf("median round trip %v, beside stuck tunnels %v", before, during)
		for range 20 {
			c := s.mustDial(t, neighbours.addr)
			roundTrips(t, c, 5)
			c.Close()
		}

		s.leaveAtOnce(t, up[0], "abort, endpoint reads nothing")
		s.leaveAtOnce(t, down[0], "abort, client reads nothing")
		after(5500 * time.Millisecond) // what is stuck for 5 s needs no patience
		for i := 1; i < 4; i++ {
			up[i].Close()
			up[i].awaitFreed(t, time.Second, "close after 5 s, endpoint reads nothing")
			down[i].Close()
			down[i].awaitFreed(t, time.Second, "close after 5 s, client reads nothing")
		}
		roundTrips(t, old, 100)
	})
}

// leaveAtOnce aborts b. A Unix socket cannot: there closing is all there is, and
// to a stuck endpoint it is an orderly close, which is what the other tests see.
func (s *stage) leaveAtOnce(t *testing.T, b *blocked, what string) {
	t.Helper()
	if s.kind == connectUDS {
		defer b.Close()
		return
	}
	if err := b.Abort(); err != nil {
		t.Fatal(err)
	}
	b.awaitFreed(t, time.Second, what)
}

// TestBehaviour03StuckClose: closing a stuck tunnel in order frees its endpoint
// within --close-timeout.
func TestBehaviour03StuckClose(t *testing.T) {
	eachKindAtOnce(t, func(t *testing.T, k kind) {
		const timeout = 3 * time.Second
		flag := []string{"--close-timeout=" + timeout.String()}
		o := options{server: flag, agent: flag}
		o.client.CloseTimeout = timeout
		s := newStage(t, k, o)
		up, down := s.blockUp(t, true), s.blockDown(t)
		down.Close()
		down.awaitFreed(t, timeout, "client reads nothing")
		up.Close()
		up.awaitFreed(t, timeout, "endpoint reads nothing")
	})
}

// roundTrips sends words to an echo, one after the other, and returns the median
// time of one.
func roundTrips(t *testing.T, c tunnel, n int) time.Duration {
	t.Helper()
	took := make([]time.Duration, n)
	for i := range took {
		begin := time.Now()
		if err := tryPing(c, 5*time.Second+grace); err != nil {
			t.Fatalf("round trip %d: %v", i, err)
		}
		took[i] = time.Since(begin)
	}
	slices.Sort(took)
	return took[n/2].Round(time.Microsecond)
}
