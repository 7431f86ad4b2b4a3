package rig

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/culvert-proxy/culvert/internal/agent"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
)

// AgentConfig describes an agent; what is zero is as the flags have it.
type AgentConfig struct {
	Name         string
	ID           string // Name if empty
	Servers      []string
	Identifiers  string
	LameDuck     time.Duration // 5 s; negative for none
	DrainTimeout time.Duration
	Old          bool // without extensions
}

// agentProcess is an agent that can be started again.
type agentProcess struct {
	// Fixed after construction.
	cluster *Cluster
	cfg     AgentConfig
	number  int // of those before it

	// Of the process that runs, or ran last.
	agent  *agent.Agent
	stop   context.CancelFunc
	done   chan struct{} // closed when Run has returned
	killed *atomic.Bool

	mu sync.Mutex
	// Guarded by mu: the agent dials on goroutines of its own.
	routes map[string]Route            // by address of the endpoint
	links  map[string]*tunneltest.Conn // the last one to each server
}

// AddAgent starts an agent. The name may be that of one that has ended.
func (c *Cluster) AddAgent(cfg AgentConfig) error {
	if old := c.agents[cfg.Name]; old == nil || old.alive() {
		if err := c.free(cfg.Name); err != nil {
			return err
		}
	}
	a := &agentProcess{cluster: c, cfg: cfg, number: len(c.agents), routes: map[string]Route{}, links: map[string]*tunneltest.Conn{}}
	c.agents[cfg.Name] = a
	return a.start()
}

func (a *agentProcess) alive() bool {
	select {
	case <-a.done:
		return false
	default:
		return !a.killed.Load()
	}
}

func (a *agentProcess) start() error {
	killed := &atomic.Bool{}
	a.done, a.killed = make(chan struct{}), killed
	// Attempts are spread by a part of their interval that differs from agent to
	// agent, and is the same each time.
	chance := float64(a.number%10) / 10
	process, err := agent.New(agent.Config{
		AgentID:           orDefault(a.cfg.ID, a.cfg.Name),
		Identifiers:       a.cfg.Identifiers,
		ServerHosts:       a.cfg.Servers,
		ServerPort:        8091,
		QueueSize:         150,
		LameDuck:          max(0, orDefault(a.cfg.LameDuck, 5*time.Second)),
		DrainTimeout:      a.cfg.DrainTimeout,
		FlowBudget:        1 << 30,
		DisableExtensions: a.cfg.Old,
	}, agent.Deps{
		Logger:       a.cluster.log,
		DialServer:   func(ctx context.Context, address string) (net.Conn, error) { return a.dialServer(ctx, killed, address) },
		Lookup:       func(_ context.Context, host string) ([]string, error) { return []string{host}, nil },
		DialEndpoint: endpointDialer{a, killed},
		NoPorts:      true,
		Chance:       func() float64 { return chance },
	})
	if err != nil {
		close(a.done)
		return fmt.Errorf("agent %s: %w", a.cfg.Name, err)
	}
	var ctx context.Context
	ctx, a.stop = context.WithCancel(context.Background())
	a.agent = process
	done := a.done
	a.cluster.running.Go(func() { a.cluster.run(ctx, a.cfg.Name, process.Run, done, killed) })
	return nil
}

func (a *agentProcess) dialServer(ctx context.Context, killed *atomic.Bool, address string) (net.Conn, error) {
	if killed.Load() {
		return nil, refusal(address, syscall.ENETDOWN)
	}
	conn, err := a.cluster.net.Dialer(a.cfg.Name)(ctx, address)
	if err == nil {
		a.mu.Lock()
		a.links[address] = conn.(*tunneltest.Conn)
		a.mu.Unlock()
	}
	return conn, err
}

// drain is SIGTERM.
func (a *agentProcess) drain() { a.stop() }

// kill is SIGKILL. What the process does from now on nobody can see.
func (a *agentProcess) kill() {
	if !a.alive() {
		return
	}
	a.killed.Store(true)
	a.cluster.net.Cut(a.cfg.Name, "")
	a.stop()
}

// Route is how an endpoint looks from one agent.
type Route string

// The ways on which a dial can fail.
const (
	RouteOK           Route = "ok"
	RouteUnreachable  Route = "no-route"
	RouteRefused      Route = "refused"
	RouteBlackHole    Route = "black-hole"
	RouteNoFiles      Route = "no-files" // too many open
	RouteDNSTemporary Route = "dns-temporary"
)

// SetRoute says how an agent's dials to an endpoint go from now on.
func (c *Cluster) SetRoute(agent, address string, r Route) error {
	a := c.agents[agent]
	if a == nil {
		return fmt.Errorf("there is no agent %s", agent)
	}
	switch r {
	case RouteOK, RouteUnreachable, RouteRefused, RouteBlackHole, RouteNoFiles, RouteDNSTemporary:
	default:
		return fmt.Errorf("there is no route %q", r)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.routes[address] = r
	return nil
}

// endpointDialer is how one agent's process reaches endpoints.
type endpointDialer struct {
	agent  *agentProcess
	killed *atomic.Bool
}

// Dial implements endpoint.Dialer.
func (d endpointDialer) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	if d.killed.Load() {
		return nil, refusal(address, syscall.ENETDOWN)
	}
	d.agent.mu.Lock()
	route := d.agent.routes[address]
	d.agent.mu.Unlock()
	switch route {
	case RouteUnreachable:
		return nil, refusal(address, syscall.EHOSTUNREACH)
	case RouteRefused:
		return nil, refusal(address, syscall.ECONNREFUSED)
	case RouteNoFiles:
		return nil, refusal(address, syscall.EMFILE)
	case RouteDNSTemporary:
		return nil, &net.OpError{Op: "dial", Net: "mem", Err: &net.DNSError{Err: "server misbehaving", Name: address, IsTemporary: true}}
	case RouteBlackHole:
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Net: "mem", Addr: tunneltest.Addr(address), Err: os.ErrDeadlineExceeded}
	}
	return d.agent.cluster.net.Dialer(d.agent.cfg.Name)(ctx, address)
}

func refusal(address string, errno syscall.Errno) error {
	return &net.OpError{Op: "dial", Net: "mem", Addr: tunneltest.Addr(address), Err: os.NewSyscallError("connect", errno)}
}
