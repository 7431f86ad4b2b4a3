package behaviour

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/culvert-proxy/culvert/rig/process"
	"github.com/culvert-proxy/culvert/tunnel/client"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// stand is a stage whose processes may end or freeze: a server, any number of
// agents, one way in. The test says who is still there in the end.
type stand struct {
	*front
	t      testing.TB
	ground *process.Ground
	server *process.Server
	agents []*process.Agent
}

// standOptions describe a stand.
type standOptions struct {
	server []string             // further flags of the server
	ids    []string             // of the agents; empty ones are chosen
	agent  func(i int) []string // further flags of each agent; may be nil
}

// newStand starts a server and an agent for each ID, and waits for their links.
func newStand(t testing.TB, k kind, o standOptions) *stand {
	t.Helper()
	s := &stand{t: t, ground: process.NewGround(t)}
	s.server = s.ground.StartServer(process.ServerOptions{Mode: k.mode(), TCP: k.tcp(), Args: o.server})
	for i, id := range o.ids {
		var args []string
		if o.agent != nil {
			args = o.agent(i)
		}
		s.agents = append(s.agents, s.ground.StartAgent(process.AgentOptions{ID: id, Servers: []*process.Server{s.server}, Args: args}))
	}
	s.awaitLinks(len(o.ids))
	s.front = newFront(t, k, s.ground, s.server, client.Options{})
	t.Cleanup(s.front.close)
	return s
}

// awaitLinks waits until n links are backends, whoever's they are.
func (s *stand) awaitLinks(n int) {
	s.t.Helper()
	settle(s.t, hang, func() string {
		if got := s.server.Metric(backendLinks); got != float64(n) {
			return fmt.Sprintf("%v links are backends, not %d", got, n)
		}
		return ""
	})
}

// Series that several tests look at.
const (
	backendLinks  = `culvert_server_agent_links{state="backend"}`
	suspectLinks  = `culvert_server_agent_links{state="suspect"}`
	liveLinks     = `culvert_server_agent_links{state="connected"}`
	pendingDials  = "konnectivity_network_proxy_server_pending_backend_dials"
	agentTunnels  = "konnectivity_network_proxy_agent_open_endpoint_connections"
	agentDials    = "konnectivity_network_proxy_agent_dial_duration_seconds_count"
	serverTunnels = "konnectivity_network_proxy_server_established_connections"
)

// quiet waits until no tunnel is left in the server, unless it has ended, and in
// the agents that have not.
func (s *stand) quiet() {
	s.t.Helper()
	s.front.close()
	settle(s.t, hang, func() string {
		var l list
		if !ended(s.server.Process) {
			l.addAll(serverGauges(s.server))
		}
		for _, a := range s.agents {
			if !ended(a.Process) {
				l.addAll(agentGauges(a))
			}
		}
		return l.String()
	})
}

func (l *list) addAll(more list) { *l = append(*l, more...) }

func ended(p *process.Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// serverGauges says which gauges of a server are not at 0.
func serverGauges(s *process.Server) (l list) {
	const old = "konnectivity_network_proxy_server_"
	metrics, err := process.Scrape(s.Health + "/metrics")
	if err != nil {
		l.add("%s: %v", s.Name, err)
	}
	for _, name := range []string{
		serverTunnels, pendingDials, old + "http_connections",
		old + `grpc_connections{service_method="Proxy"}`,
		old + `full_receive_channels{service_method="Proxy"}`,
		old + `full_receive_channels{service_method="Connect"}`,
		"culvert_server_flow_budget_used_bytes",
	} {
		zero(&l, metrics, name)
	}
	return l
}

func zero(l *list, metrics map[string]float64, name string) {
	if v, ok := metrics[name]; !ok {
		l.add("%s is not there", name)
	} else if v != 0 {
		l.add("%s is %v", name, v)
	}
}

// agentGauges says which gauges of an agent are not at 0.
func agentGauges(a *process.Agent) (l list) {
	metrics, err := process.Scrape(a.Health + "/metrics")
	if err != nil {
		l.add("%s: %v", a.Name, err)
	}
	for _, name := range []string{agentTunnels, "culvert_agent_blocked_readers", "culvert_agent_flow_budget_used_bytes"} {
		zero(&l, metrics, name)
	}
	return l
}

// atOnce is eachKind for what mostly waits: all kinds at the same time.
func atOnce(t *testing.T, f func(t *testing.T, k kind), only ...kind) {
	if len(only) == 0 {
		only = kinds()
	}
	var running sync.WaitGroup
	for _, k := range only {
		running.Go(func() { t.Run(k.String(), func(t *testing.T) { f(t, k) }) })
	}
	running.Wait()
}

// notAbnormal says why err, which ended a client's reading (nil is EOF), does not
// show an abnormal end for one of these reasons; nil if it does. A Unix socket
// cannot tell, and TLS only that it was no orderly end.
func notAbnormal(k kind, err error, reasons ...wire.Reason) error {
	reset := errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
	switch k {
	case connectUDS:
		if err == nil || reset {
			return nil
		}
	case connectTLS:
		if errors.Is(err, io.ErrUnexpectedEOF) || reset {
			return nil
		}
	default:
		var end *client.EndError
		if errors.As(err, &end) && slices.Contains(reasons, end.Reason) {
			return nil
		}
	}
	return fmt.Errorf("the end is not shown as abnormal (%v), but as: %w", reasons, orEOF(err))
}

func orEOF(err error) error {
	if err == nil {
		return io.EOF
	}
	return err
}

// begins checks that what arrived is the beginning of a source, or all of it up
// to want bytes if want is not negative.
func (d digest) begins(seed uint64, want int64) error {
	if want >= 0 && d.n != want {
		return fmt.Errorf("%d bytes arrived, not %d; the end: %w", d.n, want, orEOF(d.err))
	}
	if expected(seed, d.n).sum != d.sum {
		return fmt.Errorf("the %d bytes that arrived are not those that were sent", d.n)
	}
	return nil
}

// within fails if more than the promised time, and grace, has passed.
func within(t testing.TB, since time.Time, promised time.Duration, what string) {
	t.Helper()
	if took := time.Since(since); took > promised+grace {
		t.Errorf("%s took %v, promised are %v", what, took, promised)
	}
}

// newEndpointOn is newEndpoint on another loopback address.
func newEndpointOn(t testing.TB, host string, serve func(e *endpoint, c *net.TCPConn)) *endpoint {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	e := &endpoint{addr: listener.Addr().String(), listener: listener, over: make(chan struct{}), conns: map[*net.TCPConn]bool{}}
	go e.accept(serve)
	t.Cleanup(e.close)
	return e
}
