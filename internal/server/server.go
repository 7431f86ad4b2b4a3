package server

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"

	"github.com/culvert-proxy/culvert/internal/lease"
	"github.com/culvert-proxy/culvert/internal/observe"
	"github.com/culvert-proxy/culvert/internal/server/agentlink"
	"github.com/culvert-proxy/culvert/internal/server/backend"
	"github.com/culvert-proxy/culvert/internal/server/frontconnect"
	"github.com/culvert-proxy/culvert/internal/server/frontgrpc"
	"github.com/culvert-proxy/culvert/internal/server/metrics"
	"github.com/culvert-proxy/culvert/internal/server/relay"
	"github.com/culvert-proxy/culvert/internal/servercounter"
	"github.com/culvert-proxy/culvert/internal/transport"
	"github.com/culvert-proxy/culvert/tunnel/flow"
	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// extensions are what this server can do with agents; with clients only
// link.ClientExtensions of them mean anything.
const extensions = wire.ExtCredit | wire.ExtHalfClose | wire.ExtReason | wire.ExtPing | wire.ExtReady | wire.ExtServerCount | wire.ExtDrain

// Deps are what a server is given instead of making it. The zero value makes
// everything from the Config.
type Deps struct {
	Logger klog.Logger
	// FrontendListener and AgentListener replace those of the Config, without
	// TLS: for tests on an in-memory network.
	FrontendListener net.Listener
	AgentListener    net.Listener
	// Leases replaces the Kubernetes API, for the lease controller.
	Leases coordinationclient.LeasesGetter
	// NoPorts leaves out the health and admin ports.
	NoPorts bool
	// Rand replaces the random bits that choose among equal backends, so that a
	// recorded scenario is the same each time. Safe for concurrent use.
	Rand func() uint64
}

// Server is one proxy-server. Make it with New, run it once.
type Server struct {
	// Fixed after construction.
	cfg       Config
	log       klog.Logger
	metrics   *metrics.Metrics
	router    *backend.Router[*relay.Peer]
	relay     *relay.Relay
	agents    *agentlink.Server
	agentRPC  *grpc.Server
	frontend  frontend
	agentSide net.Listener
	frontSide net.Listener
	health    *observe.Server
	admin     *observe.Server
	started   time.Time
	counter   servercounter.ServerCounter
	publisher *lease.Publisher              // nil without the lease controller
	beside    []func(context.Context) error // what counts servers in the background

	running  sync.WaitGroup
	failures failures
	stopping atomic.Bool
	closing  sync.Once
}

// frontend is what both kinds have in common.
type frontend interface {
	// serve accepts clients until the listener is closed.
	serve(l net.Listener) error
	// stop takes no new clients; tunnels go on.
	stop()
	// flush waits, after stop, until clients have been sent what their tunnels'
	// ends had to say.
	flush(ctx context.Context)
	// close ends everything that is left.
	close()
}

// New opens every listener and port that cfg names, so that whatever cannot be
// had is an error now. Run or Close must follow.
func New(cfg Config, deps Deps) (*Server, error) {
	s := &Server{cfg: cfg, log: deps.Logger.WithValues("serverID", cfg.ServerID), started: time.Now()}
	s.metrics = metrics.New(strategyNames(cfg.Strategies))
	s.router = backend.New[*relay.Peer](backend.Config{Strategies: cfg.Strategies, FailureZone: cfg.FailureZone, Rand: deps.Rand})
	budget := flow.NewBudget(cfg.FlowBudget)
	s.relay = relay.New(relay.Config{
		ServerID:           cfg.ServerID,
		BackendDialTimeout: cfg.BackendDialTimeout,
		DialAttempts:       cfg.DialAttempts,
		CloseTimeout:       cfg.CloseTimeout,
		StuckTunnelTimeout: cfg.StuckTunnelTimeout,
		HalfCloseTimeout:   cfg.HalfCloseTimeout,
		MaxPendingDials:    cfg.MaxPendingDials,
		MaxTunnels:         cfg.MaxTunnels,
		Budget:             budget,
		OldPeerQueue:       int64(cfg.QueueSize) * oldPeerChunk,
	}, s.router, s.observer())
	s.agents = agentlink.New(agentlink.Config{
		ServerID:   cfg.ServerID,
		Extensions: s.offers(),
		Logger:     s.log,
	}, func() int { return s.counter.CountServers() }, s.relay, routing{s.router}, nil, s.metrics.Agents())
	s.metrics.Watch(s.readings(budget))
	if err := s.counting(deps); err != nil {
		return nil, err
	}
	if err := s.open(deps); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// oldPeerChunk is the most that one packet of --xfr-channel-size may hold.
const oldPeerChunk = 32 << 10

func (s *Server) offers() wire.Extensions {
	if s.cfg.DisableExtensions {
		return 0
	}
	return extensions
}

func strategyNames(strategies []backend.Strategy) []string {
	names := make([]string, len(strategies))
	for i, strategy := range strategies {
		names[i] = strategy.String()
	}
	return names
}

// routing lets agent links join the router.
type routing struct{ router *backend.Router[*relay.Peer] }

// Join implements agentlink.Router.
func (r routing) Join(p *relay.Peer, ids wire.Identifiers) {
	r.router.Join(p, backend.Member{AgentID: p.Info().AgentID, Identifiers: ids})
}

// Leave implements agentlink.Router.
func (r routing) Leave(p *relay.Peer) { r.router.Leave(p) }

func (s *Server) open(deps Deps) error {
	for _, step := range []func(Deps) error{s.openFrontend, s.openAgents, s.openPorts} {
		if err := step(deps); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) openFrontend(deps Deps) error {
	conf, err := s.listenFrontend(deps)
	if err != nil {
		return err
	}
	if s.cfg.Mode == ModeHTTPConnect {
		if conf != nil {
			s.frontSide = tlsListener(s.frontSide, conf)
		}
		s.frontend = &connectFrontend{frontconnect.New(frontconnect.Config{}, s.relay, s.metrics.Connect())}
		return nil
	}
	var creds credentials.TransportCredentials = transport.Cleartext()
	if conf != nil {
		creds = conf.Credentials()
	}
	ping, policy := transport.FrontendKeepalive(s.cfg.FrontendKeepaliveTime)
	rpc := grpc.NewServer(append(frontgrpc.ServerOptions(ping, policy, nil), grpc.Creds(creds))...)
	frontgrpc.New(frontgrpc.Config{ServerID: s.cfg.ServerID, Extensions: s.offers() & link.ClientExtensions}, s.relay, s.metrics.Clients()).Register(rpc)
	s.frontend = newGRPCFrontend(rpc)
	return nil
}

// listenFrontend sets frontSide; the TLS side is nil for a Unix socket.
func (s *Server) listenFrontend(deps Deps) (*transport.ServerTLS, error) {
	ctx := context.Background()
	var err error
	switch {
	case deps.FrontendListener != nil:
		s.frontSide = deps.FrontendListener
		return nil, nil
	case s.cfg.UDSName != "":
		if s.frontSide, err = transport.ListenUnix(ctx, s.cfg.UDSName, s.cfg.DeleteExistingUDS); err != nil {
			return nil, fmt.Errorf("--uds-name=%s: %w", s.cfg.UDSName, err)
		}
		return nil, nil
	}
	protocol := transport.ProtocolHTTP2
	if s.cfg.Mode == ModeHTTPConnect {
		protocol = transport.ProtocolHTTP1
	}
	conf, err := s.serverTLS("server", s.cfg.Frontend, protocol)
	if err != nil {
		return nil, err
	}
	if s.frontSide, err = transport.ListenTCP(ctx, s.cfg.ServerAddress, transport.TCPOptions{}); err != nil {
		return nil, fmt.Errorf("--server-port: %w", err)
	}
	return conf, nil
}

func (s *Server) openAgents(deps Deps) error {
	ping, policy := transport.AgentKeepalive(s.cfg.KeepaliveTime)
	var creds credentials.TransportCredentials = transport.Cleartext()
	if s.agentSide = deps.AgentListener; s.agentSide == nil {
		conf, err := s.serverTLS("cluster", s.cfg.Cluster, transport.ProtocolHTTP2)
		if err != nil {
			return err
		}
		if s.agentSide, err = transport.ListenTCP(context.Background(), s.cfg.AgentAddress, transport.TCPOptions{}); err != nil {
			return fmt.Errorf("--agent-port: %w", err)
		}
		creds = conf.Credentials()
	}
	s.agentRPC = grpc.NewServer(append(agentlink.ServerOptions(ping, policy), grpc.Creds(creds))...)
	s.agents.Register(s.agentRPC)
	return nil
}

// serverTLS loads the files of a role, "server" or "cluster" as in the flags.
func (s *Server) serverTLS(role string, files TLSFiles, protocol string) (*transport.ServerTLS, error) {
	conf, err := transport.NewServerTLS(transport.ServerTLSConfig{
		CertFile:     files.Cert,
		KeyFile:      files.Key,
		ClientCAFile: files.CA,
		MinVersion:   s.cfg.TLSMinVersion,
		CipherSuites: s.cfg.CipherSuites,
		Protocol:     protocol,
		Report: func(err error) {
			if err != nil {
				s.log.Error(err, "Changed certificate files cannot be used; the last good ones stay", "role", role)
				return
			}
			s.log.Info("Certificate files changed and are in use", "role", role)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("--%s-cert, --%s-key, --%s-ca-cert: %w", role, role, role, err)
	}
	return conf, nil
}
