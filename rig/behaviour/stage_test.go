package behaviour

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/culvert-proxy/culvert/rig/process"
	"github.com/culvert-proxy/culvert/tunnel/client"
)

// stage is what a test plays on: one server, one agent, one way in.
type stage struct {
	*front
	t      testing.TB
	ground *process.Ground
	server *process.Server
	agent  *process.Agent

	// What was there before the test began.
	serverBase, agentBase usage
}

type options struct {
	server, agent []string // further flags
	client        client.Options
}

// newStage starts the processes, warms the way from end to end up, and takes
// note of what idle processes hold. The end of the test checks that they hold no
// more then.
func newStage(t testing.TB, k kind, o options) *stage {
	t.Helper()
	s := &stage{t: t, ground: process.NewGround(t)}
	s.server = s.ground.StartServer(process.ServerOptions{Mode: k.mode(), TCP: k.tcp(), Args: append(o.server, "--enable-profiling")})
	s.agent = s.ground.StartAgent(process.AgentOptions{Servers: []*process.Server{s.server}, Args: append(o.agent, "--enable-profiling")})
	s.server.AwaitAgents(1)
	s.front = newFront(t, k, s.ground, s.server, o.client)
	s.warmUp()
	s.front.close()
	settle(t, hang, s.gauges)
	s.serverBase, s.agentBase = s.idle()
	s.front = newFront(t, k, s.ground, s.server, o.client)
	t.Cleanup(s.check)
	return s
}

func (s *stage) warmUp() {
	s.t.Helper()
	e := newEndpoint(s.t, echo)
	c := s.mustDial(s.t, e.addr)
	ping(s.t, c)
	c.Close()
	settle(s.t, hang, func() string {
		if n := e.open(); n > 0 {
			return fmt.Sprintf("%d endpoint sockets", n)
		}
		return ""
	})
	e.close()
}

// check is the end of every test: nothing is left behind.
func (s *stage) check() {
	s.front.close()
	if s.t.Failed() {
		return
	}
	s.quiet(hang)
}

// quiet waits until nothing of any tunnel is left in the processes.
func (s *stage) quiet(limit time.Duration) {
	s.t.Helper()
	begin := time.Now()
	if last := settled(limit, func() string { return s.gauges() }); last != "" {
		s.t.Errorf("left after %v: %s", limit, last)
		return
	}
	rest := max(grace, limit-time.Since(begin))
	if last := settled(rest, s.excess); last != "" {
		s.t.Errorf("left after %v: %s\n%s", limit, last, s.stacks())
	}
}

// gauges says which gauges are not at 0.
func (s *stage) gauges() string {
	return append(serverGauges(s.server), agentGauges(s.agent)...).String()
}

// usage is what a process holds.
type usage struct{ goroutines, sockets int }

func (s *stage) usage() (server, agent usage) {
	return usage{goroutines(s.server.Admin), sockets(s.server.PID())}, usage{goroutines(s.agent.Admin), sockets(s.agent.PID())}
}

// goroutines counts those of a process. (The metric of that name varies with those
// that collect the metrics.)
func goroutines(admin string) int {
	var n int
	if _, text, err := process.Get(admin + "/debug/pprof/goroutine?debug=1"); err == nil {
		fmt.Sscanf(text, "goroutine profile: total %d", &n)
	}
	return n
}

// idle is the least of several looks at processes that do nothing.
func (s *stage) idle() (server, agent usage) {
	server, agent = s.usage()
	for range 5 {
		nextServer, nextAgent := s.usage()
		server, agent = least(server, nextServer), least(agent, nextAgent)
	}
	return server, agent
}

func least(a, b usage) usage {
	return usage{min(a.goroutines, b.goroutines), min(a.sockets, b.sockets)}
}

// excess says what the processes hold beyond what they held before the test.
func (s *stage) excess() string {
	var l list
	server, agent := s.usage()
	for _, p := range []struct {
		name      string
		base, now usage
	}{{"server", s.serverBase, server}, {"agent", s.agentBase, agent}} {
		if p.now.goroutines > p.base.goroutines || p.now.sockets > p.base.sockets {
			l.add("%s: %d goroutines (%d before), %d sockets (%d before)", p.name, p.now.goroutines, p.base.goroutines, p.now.sockets, p.base.sockets)
		}
	}
	return l.String()
}

// sockets counts the sockets of a process.
func sockets(pid int) int {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	n := 0
	for _, e := range entries {
		if target, err := os.Readlink(dir + "/" + e.Name()); err == nil && strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n
}

// stacks shows where the goroutines of both processes are.
func (s *stage) stacks() string {
	var b strings.Builder
	for _, admin := range []string{s.server.Admin, s.agent.Admin} {
		_, text, err := process.Get(admin + "/debug/pprof/goroutine?debug=1")
		fmt.Fprintln(&b, admin, err)
		b.WriteString(text)
	}
	return b.String()
}

// ping sends a few bytes to an echo and waits for them.
func ping(t testing.TB, c tunnel) {
	t.Helper()
	if err := tryPing(c, hang); err != nil {
		t.Fatal(err)
	}
}

func tryPing(c tunnel, limit time.Duration) error {
	const word = "are you there?"
	c.SetDeadline(time.Now().Add(limit))
	defer c.SetDeadline(time.Time{})
	if _, err := c.Write([]byte(word)); err != nil {
		return fmt.Errorf("write to the echo: %w", err)
	}
	return expect(c, []byte(word))
}
