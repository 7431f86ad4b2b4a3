package behaviour

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/culvert-proxy/culvert/rig/process"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// twins are many tunnels through two agents with the same agent ID. Each agent
// has an endpoint of its own, which only it is asked for; a third one is for
// both. Every tunnel has a number, and its own bytes in both directions.
type twins struct {
	*stand
	size      int64
	endpoints []*endpoint // the first two are one agent's each
	errs      chan error  // of endpoints

	mu   sync.Mutex
	done int   // rounds that endpoints have come to the end of
	lost []int // numbers of the tunnels whose endpoint saw an end
}

// Each tunnel sends and receives its own sources, a fresh pair in each round.
func upSeed(number, round int) uint64 { return uint64(number)<<8 | uint64(round)<<1 }

func downSeed(number, round int) uint64 { return upSeed(number, round) | 1 }

// serve is the endpoint of one tunnel: it learns its number, then exchanges
// rounds until the tunnel ends.
func (w *twins) serve(_ *endpoint, c *net.TCPConn) {
	var number uint32
	if err := binary.Read(c, binary.BigEndian, &number); err != nil {
		w.errs <- fmt.Errorf("endpoint: no number: %w", err)
		return
	}
	n := int(number)
	for round := 0; ; round++ {
		var begin [1]byte
		if _, err := io.ReadFull(c, begin[:]); err != nil {
			w.mu.Lock()
			w.lost = append(w.lost, n)
			w.mu.Unlock()
			return
		}
		if err := exchange(c, downSeed(n, round), upSeed(n, round), w.size); err != nil {
			w.errs <- fmt.Errorf("endpoint of tunnel %d, round %d: %w", n, round, err)
			return
		}
		w.mu.Lock()
		w.done++
		w.mu.Unlock()
	}
}

// exchange writes one source and reads another at the same time.
func exchange(c io.ReadWriter, give1, take1 uint64, size int64) error {
	wrote := make(chan error, 1)
	go func() { wrote <- give(c, give1, size) }()
	got := take(io.LimitReader(c, size))
	return errors.Join(got.err, got.begins(take1, size), <-wrote)
}

// round lets these tunnels exchange bytes, all at once, and waits for both ends.
func (w *twins) round(tunnels map[int]tunnel, round int) {
	w.t.Helper()
	w.mu.Lock()
	want := w.done + len(tunnels)
	w.mu.Unlock()
	numbers := slices.Sorted(maps.Keys(tunnels))
	many(w.t, len(numbers), len(numbers), func(i int) error {
		n := numbers[i]
		c := tunnels[n]
		c.SetDeadline(time.Now().Add(hang))
		if _, err := c.Write([]byte{1}); err != nil {
			return err
		}
		return exchange(c, upSeed(n, round), downSeed(n, round), w.size)
	})
	process.Eventually(w.t, hang, "the endpoints are done too", func() bool {
		if len(w.errs) > 0 {
			w.t.Fatal(<-w.errs)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.done == want
	})
}

// Two agent processes with one agent ID and hundreds of tunnels: not a byte
// reaches the wrong client or endpoint; both serve, each its own endpoints; the
// server says what it thinks of it. When one is killed exactly its tunnels end.
func TestBehaviour08TwoAgentsWithOneID(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		w := &twins{size: scaled[int64](48<<10, 256<<10), errs: make(chan error, 10000)}
		hosts := []string{"127.0.0.2", "127.0.0.3", "127.0.0.1"}
		w.stand = newStand(t, k, standOptions{
			server: []string{"--proxy-strategies=destHost,default"},
			ids:    []string{"twin", "twin"},
			agent:  func(i int) []string { return []string{"--agent-identifiers=ipv4=" + hosts[i]} },
		})
		for _, host := range hosts {
			w.endpoints = append(w.endpoints, newEndpointOn(t, host, w.serve))
		}
		total := scaled(240, 900)
		tunnels := map[int]tunnel{}
		var mu sync.Mutex
		many(t, total, 32, func(i int) error {
			c, err := w.dial(w.endpoints[i%3].addr)
			if err != nil {
				return err
			}
			mu.Lock()
			tunnels[i] = c
			mu.Unlock()
			return binary.Write(c, binary.BigEndian, uint32(i))
		})
		w.bothServe(total)
		w.round(tunnels, 0)
		w.round(tunnels, 1)
		w.killOne(tunnels)
		w.round(tunnels, 2)
		for _, c := range tunnels {
			c.Close()
		}
		w.quiet()
	})
}

// bothServe checks that each agent has the tunnels of its own endpoint and some of
// those of the third, and that a warning and a metric tell of the twins.
func (w *twins) bothServe(total int) {
	w.t.Helper()
	open := []int{int(w.agents[0].Metric(agentTunnels)), int(w.agents[1].Metric(agentTunnels))}
	if min(open[0], open[1]) <= total/3 || open[0]+open[1] != total {
		w.t.Fatalf("the agents serve %d of %d tunnels; %d endpoints are each one's own", open, total, total/3)
	}
	if n := w.server.Metric("culvert_server_duplicate_agent_ids_total"); n != 1 {
		w.t.Errorf("the metric of duplicate agent IDs says %v, not 1", n)
	}
	if !strings.Contains(w.server.Log(), "Another process has the same agent ID") {
		w.t.Error("the server's log holds no warning of the duplicate agent ID")
	}
}

// killOne kills an agent and takes out of tunnels those that end.
func (w *twins) killOne(tunnels map[int]tunnel) {
	t := w.t
	t.Helper()
	died := int(w.agents[0].Metric(agentTunnels))
	since := time.Now()
	w.agents[0].Kill()
	settle(t, hang, func() string {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.lost) != died {
			return fmt.Sprintf("%d endpoints saw the end of %d tunnels", len(w.lost), died)
		}
		return ""
	})
	w.mu.Lock()
	lost := slices.Clone(w.lost)
	w.mu.Unlock()
	for _, n := range lost {
		c := tunnels[n]
		delete(tunnels, n)
		if n%3 == 1 {
			t.Errorf("tunnel %d went to the other agent's own endpoint and has ended", n)
		}
		c.SetDeadline(time.Now().Add(hang))
		got := take(c)
		if got.n > 0 {
			t.Errorf("tunnel %d: %d bytes that nobody sent", n, got.n)
		}
		if err := notAbnormal(w.kind, got.err, wire.ReasonLinkLost); err != nil {
			t.Errorf("tunnel %d: %v", n, err)
		}
		c.Close()
	}
	within(t, since, lostTwin, "the end of all tunnels of a killed agent")
	for n := range tunnels {
		if n%3 == 0 {
			t.Errorf("tunnel %d went to the killed agent's own endpoint and is still there", n)
		}
	}
}

// lostTwin is generous: hundreds of ends are looked at one after the other.
const lostTwin = 5 * time.Second

// An agent loses its link, and the server does not hear of it. The agent
// reconnects; new dials use its new link at once, and the old one is given up
// with its tunnels.
func TestBehaviour08ReconnectWhileTheOldLinkHangs(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		s := newStand(t, k, standOptions{})
		network := newForwarder(t, s.server)
		s.agents = append(s.agents, s.ground.StartAgent(process.AgentOptions{Servers: []*process.Server{network.asServer()}}))
		s.awaitLinks(1)
		e := newEndpoint(t, echo)
		old := s.mustDial(t, e.addr)
		ping(t, old)
		network.orphan()
		since := time.Now()
		for range 20 {
			c := s.mustDial(t, e.addr)
			ping(t, c)
			c.Close()
			within(t, since, 2*time.Second, "using the new link")
			since = time.Now()
		}
		old.SetDeadline(time.Now().Add(hang))
		if err := notAbnormal(k, take(old).err, wire.ReasonLinkLost); err != nil {
			t.Error(err)
		}
		old.Close()
		if n := s.server.Metric("culvert_server_agent_links_replaced_total"); n != 1 {
			t.Errorf("the metric of replaced links says %v, not 1", n)
		}
		if n := s.server.Metric("culvert_server_duplicate_agent_ids_total"); n != 0 {
			t.Errorf("an agent that reconnects counts as a duplicate %v times", n)
		}
		s.awaitLinks(1)
		s.quiet()
	})
}
