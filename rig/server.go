package rig

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/culvert-proxy/culvert/internal/server"
	"github.com/culvert-proxy/culvert/internal/server/backend"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
)

// The two names of a server on the network.
func frontendOf(server string) string  { return server + ":8090" }
func agentSideOf(server string) string { return server + ":8091" }

// ServerConfig describes a server; what is zero is as the flags have it.
type ServerConfig struct {
	Name        string
	Connect     bool // HTTP CONNECT instead of gRPC
	Strategies  []backend.Strategy
	Zone        string
	Count       int           // of servers, as announced; 1
	Grace       time.Duration // --graceful-shutdown-timeout
	DialTimeout time.Duration // --backend-dial-timeout; 7 s
	Attempts    int           // --dial-attempts; 3
	Old         bool          // without extensions
}

// serverProcess is a server that can be started again.
type serverProcess struct {
	// Fixed after construction.
	cluster *Cluster
	cfg     ServerConfig

	// Of the process that runs, or ran last.
	server    *server.Server
	listeners []*tunneltest.Listener
	stop      context.CancelFunc
	done      chan struct{} // closed when Run has returned
	killed    *atomic.Bool
}

// AddServer starts a server. The name may be that of one that has ended.
func (c *Cluster) AddServer(cfg ServerConfig) error {
	if old := c.servers[cfg.Name]; old == nil || old.alive() {
		if err := c.free(cfg.Name); err != nil {
			return err
		}
	}
	s := &serverProcess{cluster: c, cfg: cfg}
	c.servers[cfg.Name] = s
	return s.start()
}

func (s *serverProcess) alive() bool {
	select {
	case <-s.done:
		return false
	default:
		return !s.killed.Load()
	}
}

func (s *serverProcess) start() error {
	name := s.cfg.Name
	front, agents := s.cluster.net.Listen(frontendOf(name)), s.cluster.net.Listen(agentSideOf(name))
	s.listeners = []*tunneltest.Listener{front, agents}
	mode := server.ModeGRPC
	if s.cfg.Connect {
		mode = server.ModeHTTPConnect
	}
	srv, err := server.New(server.Config{
		ServerID:                name,
		Mode:                    mode,
		Strategies:              s.cfg.Strategies,
		FailureZone:             s.cfg.Zone,
		ServerCount:             max(s.cfg.Count, 1),
		GracefulShutdownTimeout: s.cfg.Grace,
		BackendDialTimeout:      orDefault(s.cfg.DialTimeout, 7*time.Second),
		DialAttempts:            orDefault(s.cfg.Attempts, 3),
		QueueSize:               10,
		FlowBudget:              1 << 30,
		DisableExtensions:       s.cfg.Old,
	}, server.Deps{
		Logger:           s.cluster.log,
		FrontendListener: front,
		AgentListener:    agents,
		NoPorts:          true,
		Rand:             func() uint64 { return 0 }, // among equals always the same one
	})
	s.done, s.killed = make(chan struct{}), &atomic.Bool{}
	if err != nil {
		close(s.done)
		return fmt.Errorf("server %s: %w", name, err)
	}
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	s.server = srv
	done, killed := s.done, s.killed
	s.cluster.running.Go(func() { s.cluster.run(ctx, name, srv.Run, done, killed) })
	return nil
}

// run is a process's life.
func (c *Cluster) run(ctx context.Context, name string, life func(context.Context) error, done chan<- struct{}, killed *atomic.Bool) {
	err := life(ctx)
	switch {
	case killed.Load():
	case err != nil:
		c.journal.fault(name, "ended: %v", err)
	default:
		c.journal.add(name, "stopped")
	}
	close(done)
}

// drain is SIGTERM.
func (s *serverProcess) drain() { s.stop() }

// kill is SIGKILL: the network notices, and nobody is told anything.
func (s *serverProcess) kill() {
	if !s.alive() {
		return
	}
	s.killed.Store(true)
	for _, l := range s.listeners {
		_ = l.Close()
		l.Cut()
	}
	s.stop() // nobody is left to whom it could be graceful
}

func orDefault[T comparable](x, otherwise T) T {
	var zero T
	if x == zero {
		return otherwise
	}
	return x
}
