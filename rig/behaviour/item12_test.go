package behaviour

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-proxy/culvert/rig/process"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

const (
	// frozenLimit is when a frozen agent must not be noticed any more.
	frozenLimit = 30 * time.Second
	// patience is how long one dial beside a frozen agent may take.
	patience = 8 * time.Second
)

// newFrozen starts two agents, makes sure that both are used, and freezes the
// first, on which a tunnel is open.
func newFrozen(t *testing.T, k kind) (s *stand, e *endpoint, held tunnel) {
	t.Helper()
	s = newStand(t, k, standOptions{ids: []string{"freezes", "goes-on"}})
	e = newEndpoint(t, echo)
	process.Eventually(t, hang, "both agents are used", func() bool {
		if err := short(s.front, e.addr); err != nil {
			t.Error(err)
			return true
		}
		return s.agents[0].Metric(agentDials) > 0 && s.agents[1].Metric(agentDials) > 0
	})
	// Load decides between the two, so one of a few is the first's.
	var others []tunnel
	for held == nil {
		before := s.agents[0].Metric(agentDials)
		c := s.mustDial(t, e.addr)
		ping(t, c)
		if s.agents[0].Metric(agentDials) > before {
			held = c
		} else {
			others = append(others, c)
		}
	}
	for _, c := range others {
		c.Close()
	}
	freeze(t, s.agents[0].Process)
	return s, e, held
}

// freeze stops a process, and waits until all its threads stand still.
func freeze(t testing.TB, p *process.Process) {
	t.Helper()
	p.Signal(unix.SIGSTOP)
	process.Eventually(t, hang, p.Name+" stands still", func() bool {
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.PID()))
		if err != nil || len(stats) == 0 {
			return false
		}
		for _, name := range stats {
			text, err := os.ReadFile(name)
			// The state stands behind the name, which is in parentheses.
			if i := strings.LastIndexByte(string(text), ')'); err != nil || i < 0 || !strings.HasPrefix(string(text[i:]), ") T") {
				return false
			}
		}
		return true
	})
}

// dials makes n dials, width at a time, and says how many did not succeed within
// limit each. Their tunnels are closed when all are done, so that the load of an agent
// that answers grows and one that does not has its share of the dials.
func (s *stand) dials(address string, n, width int, limit time.Duration) (failed int, first error) {
	var (
		mu   sync.Mutex
		open []tunnel
	)
	many(s.t, n, width, func(int) error {
		c, err := s.timelyDial(address, limit)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			open = append(open, c)
		case failed == 0:
			first = err
			fallthrough
		default:
			failed++
		}
		return nil
	})
	for _, c := range open {
		c.Close()
	}
	return failed, first
}

func (s *stand) timelyDial(address string, limit time.Duration) (tunnel, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c, err := s.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	if err := tryPing(c, hang); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// mustServe fails the test unless over 99 % of dials succeed in time.
func (s *stand) mustServe(address, when string) {
	s.t.Helper()
	n := scaled(200, 1000)
	if failed, first := s.dials(address, n, 16, patience); failed*100 >= n {
		s.t.Errorf("%s: %d of %d dials did not succeed within %v, the first: %v", when, failed, n, patience, first)
	}
}

// usesAgain waits until the first agent is given dials.
func (s *stand) usesAgain(address string) {
	s.t.Helper()
	before := s.agents[0].Metric(agentDials)
	process.Eventually(s.t, hang, "the thawed agent is used", func() bool {
		if err := short(s.front, address); err != nil {
			s.t.Error(err)
			return true
		}
		return s.agents[0].Metric(agentDials) > before
	})
}

// One of two agents freezes, with every flag at its default. In real time, since
// frozen processes and sockets full of unread bytes are the point: what pings and
// timeouts do in 25 s is tested in fake time where they are. All kinds wait at
// once.
func TestBehaviour12FrozenAgent(t *testing.T) {
	t.Parallel() // it waits
	atOnce(t, func(t *testing.T, k kind) {
		s, e, held := newFrozen(t, k)
		since := time.Now()
		// Whoever asks the frozen agent waits; then it is suspect, and nobody does.
		if failed, first := s.dials(e.addr, 100, 100, hang); failed > 0 {
			t.Errorf("%d of 100 dials right after the freeze did not succeed, the first: %v", failed, first)
		}
		if n := s.server.Metric(suspectLinks); n != 1 {
			t.Errorf("%v agents are suspect behind these dials, not 1", n)
		}
		s.mustServe(e.addr, "while the frozen agent is suspect")
		// Its link is given up, and what was on it.
		held.SetDeadline(time.Now().Add(hang))
		err := notAbnormal(k, take(held).err, wire.ReasonLinkLost)
		within(t, since, frozenLimit, "giving up a frozen agent's tunnel")
		if err != nil {
			t.Error(err)
		}
		held.Close()
		process.Eventually(t, hang, "the frozen agent's link is given up", func() bool { return s.server.Metric(liveLinks) == 1 })
		s.mustServe(e.addr, "after the frozen agent's link was given up")
		s.agents[0].Signal(unix.SIGCONT)
		s.awaitLinks(2)
		s.usesAgain(e.addr)
		s.quiet()
	}, connectUDS, connectTLS, grpcReusable)
}

// One that thaws before it is given up keeps its link and its tunnels, and is
// trusted again as soon as it says anything.
func TestBehaviour12FrozenForAMoment(t *testing.T) {
	t.Parallel() // it waits
	atOnce(t, func(t *testing.T, k kind) {
		s, e, held := newFrozen(t, k)
		if failed, first := s.dials(e.addr, 20, 20, hang); failed > 0 {
			t.Errorf("%d of 20 dials did not succeed, the first: %v", failed, first)
		}
		if n := s.server.Metric(suspectLinks); n != 1 {
			t.Errorf("%v agents are suspect behind these dials, not 1", n)
		}
		s.agents[0].Signal(unix.SIGCONT)
		process.Eventually(t, hang, "the thawed agent is trusted", func() bool { return s.server.Metric(suspectLinks) == 0 })
		ping(t, held)
		if err := closeWhole(held); err != nil {
			t.Errorf("the tunnel through the agent that froze: %v", err)
		}
		s.usesAgain(e.addr) // now that its load is that of the other one
		if n := s.server.Metric("culvert_server_agent_links_replaced_total"); n != 0 {
			t.Errorf("%v links were replaced", n)
		}
		s.quiet()
	}, connectUDS, grpcTLS)
}
