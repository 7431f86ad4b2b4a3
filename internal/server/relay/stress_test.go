package relay

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// TestRandomInterleavings lets clients, endpoints and links do whatever they may
// do, at random times, and checks that no byte is lost, changed or delivered to
// the wrong one, and that nothing is left behind.
func TestRandomInterleavings(t *testing.T) {
	seeds := 12
	if testing.Short() {
		seeds = 5
	}
	var sum stressSum
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inWorld(t, Config{BackendDialTimeout: 7 * time.Second}, func(w *world) {
				s := &stress{w: w, sum: &sum}
				s.run(rand.New(rand.NewPCG(uint64(seed), 1)))
			})
		})
	}
	// The test proves little if everything fails, or nothing does.
	t.Logf("%+v", sum.counts)
	for _, what := range []string{"up whole", "down whole", "failed", "orderly", "abnormal"} {
		if sum.counts[what] < seeds {
			t.Errorf("%s: only %d in %d runs", what, sum.counts[what], seeds)
		}
	}
}

type stressSum struct {
	mu     sync.Mutex
	counts map[string]int
}

func (s *stressSum) add(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts == nil {
		s.counts = map[string]int{}
	}
	s.counts[what]++
}

type stress struct {
	w    *world
	sum  *stressSum
	wait sync.WaitGroup

	mu    sync.Mutex
	conns map[string]*stressConn // by agent and connection ID
}

// stressConn is what the endpoint's side of one connection did.
type stressConn struct {
	agent  *fakeAgent
	id     wire.ConnectionID
	window int64
	half   bool // it may half-close
	key    byte

	mu     sync.Mutex
	sent   int  // bytes down
	closed bool // in order and by itself, behind all it sent
	quit   bool // CLOSE_RSP was sent
}

const stressTunnels = 60

func (s *stress) run(rng *rand.Rand) {
	s.conns = map[string]*stressConn{}
	for i := range 3 {
		ext := newAgent
		if i == 2 {
			ext = 0
		}
		a := s.w.attach(ext)
		s.script(a, rand.New(rand.NewPCG(rng.Uint64(), 2)))
		if r := rand.New(rand.NewPCG(rng.Uint64(), 5)); i == 1 {
			s.wait.Go(func() {
				s.sleep(r, 3000)
				s.w.cut(a)
			})
		}
	}
	for range stressTunnels {
		r := rand.New(rand.NewPCG(rng.Uint64(), 3))
		s.wait.Go(func() { s.client(r) })
	}
	s.wait.Wait()
	s.w.wait(time.Minute)
}

func (s *stress) sleep(rng *rand.Rand, ms int) {
	timer := time.NewTimer(time.Duration(rng.IntN(ms*1000+1)) * time.Microsecond)
	<-timer.C
}

// stream is n bytes of a stream's content from off on.
func stream(key byte, off, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		at := off + i
		b[i] = key ^ byte(at) ^ byte(at>>8)*3 ^ byte(at>>16)*7
	}
	return b
}

// client is one client's life.
func (s *stress) client(rng *rand.Rand) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.sleep(rng, 2000)
	key := byte(rng.Uint32())
	tun, c := s.w.openCtx(ctx, func(r *Request) { r.CanHalfClose = rng.IntN(3) > 0 })
	if rng.IntN(5) == 0 {
		c.gate(true)
		wait := rng.IntN(30000)
		s.wait.Go(func() {
			timer := time.NewTimer(time.Duration(wait) * time.Millisecond)
			<-timer.C
			c.gate(false)
		})
	}
	switch rng.IntN(12) {
	case 0:
		s.sleep(rng, 20)
		cancel()
	case 1:
		s.sleep(rng, 20)
		tun.HangUp()
	case 2:
		s.sleep(rng, 20)
		tun.Abort(wire.ReasonCanceled, "")
	}
	var did clientDid
	if tun.WaitEstablished() == nil {
		did = s.clientWrites(rng, tun, key)
	}
	<-tun.Done()
	s.check(tun, c, key, did)
}

// clientDid is what a client's side of a tunnel did.
type clientDid struct {
	written int  // bytes that the tunnel took
	whole   bool // that was all, and the client ended in order behind it
	stayed  bool // it read to the end
}

// clientWrites writes and ends the client's side.
func (s *stress) clientWrites(rng *rand.Rand, tun *Tunnel, key byte) clientDid {
	written := 0
	some := func(n int) bool {
		for range n {
			size := 1 + rng.IntN(40<<10)
			p := s.w.pool.payload(string(stream(key, written, size)))
			if tun.Write(p) != nil {
				return false
			}
			written += size
			if rng.IntN(3) == 0 {
				s.sleep(rng, 30)
			}
		}
		return true
	}
	ok := some(rng.IntN(20))
	if rng.IntN(4) == 0 {
		s.sleep(rng, 2000)
	}
	switch rng.IntN(6) {
	case 0, 1:
		tun.Close()
		stays := rng.IntN(2) == 0
		if !stays {
			tun.Abort(wire.ReasonAborted, "")
		}
		return clientDid{written, ok, stays}
	case 2:
		tun.HangUp()
		ok = ok && some(rng.IntN(5))
		tun.Close()
		return clientDid{written, ok, false}
	case 3:
		tun.CloseWrite()
		s.sleep(rng, 3000)
		tun.HangUp()
		return clientDid{written, ok, false}
	case 4:
		tun.CloseWrite()
		return clientDid{written, ok, true}
	default:
		s.sleep(rng, 200)
		tun.Abort(wire.ReasonAborted, "")
		return clientDid{written, false, false}
	}
}

// check compares what arrived with what was sent.
func (s *stress) check(tun *Tunnel, c *fakeClient, key byte, did clientDid) {
	t := s.w.t
	if !tun.Established() {
		s.sum.add("failed")
		return
	}
	tun.mu.Lock()
	end := tun.end
	tun.mu.Unlock()
	s.sum.add(map[bool]string{true: "abnormal", false: "orderly"}[end.Abnormal()])
	s.mu.Lock()
	conn := s.conns[connKey(tun.Peer(), tun.ConnectionID())]
	s.mu.Unlock()
	conn.mu.Lock()
	defer conn.mu.Unlock()
	conn.agent.mu.Lock()
	up := conn.agent.got[conn.id]
	conn.agent.mu.Unlock()
	if len(up) > did.written || !bytes.Equal(up, stream(key, 0, len(up))) {
		t.Errorf("up: %d bytes were written, %d arrived, or they differ", did.written, len(up))
	}
	if did.whole && !end.Abnormal() && !conn.closed {
		s.sum.add("up whole")
		if len(up) != did.written {
			t.Errorf("up: of %d bytes %d arrived although all ended in order", did.written, len(up))
		}
	}
	down := []byte(c.data())
	if len(down) > conn.sent || !bytes.Equal(down, stream(conn.key, 0, len(down))) {
		t.Errorf("down: %d bytes were sent, %d arrived, or they differ", conn.sent, len(down))
	}
	if told := c.told(); conn.closed && did.stayed && !told.Abnormal() {
		s.sum.add("down whole")
		if len(down) != conn.sent {
			t.Errorf("down: of %d bytes %d arrived although all ended in order", conn.sent, len(down))
		}
	}
}

func connKey(p *Peer, id wire.ConnectionID) string { return fmt.Sprintf("%p/%d", p, id) }
