package agent

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/credentials"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"github.com/culvert-proxy/culvert/internal/agent/endpoint"
	"github.com/culvert-proxy/culvert/internal/agent/fleet"
	"github.com/culvert-proxy/culvert/internal/agent/metrics"
	"github.com/culvert-proxy/culvert/internal/agent/serverlink"
	"github.com/culvert-proxy/culvert/internal/observe"
	"github.com/culvert-proxy/culvert/internal/servercounter"
	"github.com/culvert-proxy/culvert/internal/transport"
	"github.com/culvert-proxy/culvert/tunnel/flow"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Deps are what an agent is given instead of making it. The zero value makes
// everything from the Config.
type Deps struct {
	Logger klog.Logger
	// DialServer replaces TCP and TLS to servers, and Lookup the resolver of
	// their names: for tests on an in-memory network.
	DialServer func(ctx context.Context, address string) (net.Conn, error)
	Lookup     func(ctx context.Context, host string) ([]string, error)
	// DialEndpoint replaces the dialler of endpoints.
	DialEndpoint endpoint.Dialer
	// Leases replaces the Kubernetes API, for counting by leases.
	Leases coordinationclient.LeasesGetter
	// Nodes replaces the Kubernetes API, for identifiers from a Node.
	Nodes coreclient.NodesGetter
	// NoPorts leaves out the health and admin ports.
	NoPorts bool
	// Chance replaces the random numbers from 0 to 1, 1 excluded, that spread
	// attempts to connect, so that a recorded scenario is the same each time.
	Chance func() float64
}

// Agent is one proxy-agent. Make it with New, run it once.
type Agent struct {
	// Fixed after construction.
	cfg         Config
	log         klog.Logger
	instance    string
	metrics     *metrics.Metrics
	endpoints   *endpoint.Endpoints
	connector   *serverlink.Connector
	directory   *serverlink.Directory
	received    *servercounter.Received
	counter     servercounter.ServerCounter
	beside      []func(context.Context) error // what counts servers in the background
	identifiers identifiers
	health      *observe.Server
	admin       *observe.Server
	started     time.Time

	fleet    atomic.Pointer[fleet.Fleet] // set once by New; counters may ask before
	running  sync.WaitGroup
	draining atomic.Bool
	closing  sync.Once
}

// New loads every file and opens every port that cfg names, so that whatever
// cannot be had is an error now. Run or Close must follow.
func New(cfg Config, deps Deps) (*Agent, error) {
	a := &Agent{cfg: cfg, log: deps.Logger.WithValues("agentID", cfg.AgentID), instance: uuid.NewString(), started: time.Now()}
	a.metrics = metrics.New()
	budget := flow.NewBudget(cfg.FlowBudget)
	dialer := deps.DialEndpoint
	if dialer == nil {
		dialer = endpoint.NewNetDialer(endpoint.NetDialerConfig{})
	}
	a.endpoints = endpoint.New(endpoint.Config{
		DialTimeout:        cfg.DialTimeout,
		CloseTimeout:       cfg.CloseTimeout,
		HalfCloseTimeout:   cfg.HalfCloseTimeout,
		StuckTunnelTimeout: cfg.StuckTunnelTimeout,
		Budget:             budget,
		OldPeerQueue:       int64(cfg.QueueSize) * oldPeerChunk,
	}, dialer, events{a.metrics.Endpoints(), a.log})
	a.metrics.Watch(metrics.Readings{
		Connections: a.endpoints.Connections,
		Budget:      func() (used, limit int64) { return budget.Used(), budget.Limit() },
	})
	if err := a.newIdentifiers(deps); err != nil {
		return nil, err
	}
	if err := a.connectors(deps); err != nil {
		return nil, err
	}
	if err := a.newFleet(deps); err != nil {
		return nil, err
	}
	if err := a.openPorts(deps); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// oldPeerChunk is what one chunk of --xfr-channel-size always was, in bytes.
const oldPeerChunk = 4 << 10

func (a *Agent) offers() wire.Extensions {
	if a.cfg.DisableExtensions {
		return 0
	}
	return wire.AllExtensions
}

// connectors prepares the ways to the servers.
func (a *Agent) connectors(deps Deps) error {
	var creds credentials.TransportCredentials = transport.Cleartext()
	dial := deps.DialServer
	if dial == nil {
		conf, err := a.tls()
		if err != nil {
			return err
		}
		creds = conf.Credentials()
		dial = func(ctx context.Context, address string) (net.Conn, error) {
			return transport.DialTCP(ctx, address, transport.TCPOptions{})
		}
	}
	cfg := serverlink.Config{
		AgentID:     a.cfg.AgentID,
		Identifiers: a.identifiers.encoded,
		Instance:    a.instance,
		Extensions:  a.offers(),
		Credentials: creds,
		Dial:        dial,
		Keepalive:   transport.ServerKeepalive(a.cfg.KeepaliveTime),
	}
	if deps.DialServer == nil {
		cfg.ProxyFor = serverlink.EnvironmentProxy()
	}
	if a.cfg.TokenPath != "" {
		cfg.Token = a.token
	}
	a.connector = serverlink.New(cfg, a.endpoints, a.metrics.Streams())
	a.directory = serverlink.NewDirectory(serverlink.DirectoryConfig{
		Hosts:   a.cfg.ServerHosts,
		Port:    a.cfg.ServerPort,
		Lookup:  deps.Lookup,
		Proxied: a.connector.Proxied,
	})
	return nil
}

// newFleet makes what keeps the links.
func (a *Agent) newFleet(deps Deps) error {
	var err error
	if a.counter, err = a.counting(deps); err != nil {
		return err
	}
	a.fleet.Store(fleet.New(fleet.Config{
		SyncInterval:    a.cfg.SyncInterval,
		SyncIntervalCap: a.cfg.SyncIntervalCap,
		SyncForever:     a.cfg.SyncForever,
		LameDuck:        a.cfg.LameDuck,
		DrainTimeout:    a.cfg.DrainTimeout,
		Logger:          a.log,
	}, fleet.Deps{
		Connector: fleet.Using(a.connector),
		Directory: a.directory,
		Counter:   a.counter,
		Received:  a.received,
		Rooms:     a.endpoints,
		Observer:  a.fleetObserver(),
		Chance:    deps.Chance,
	}))
	return nil
}

func (a *Agent) tls() (*transport.ClientTLS, error) {
	protocols := slices.Clone(a.cfg.ALPN)
	if !slices.Contains(protocols, transport.ProtocolHTTP2) {
		protocols = append(protocols, transport.ProtocolHTTP2)
	}
	conf, err := transport.NewClientTLS(transport.ClientTLSConfig{
		CAFile:    a.cfg.CA,
		CertFile:  a.cfg.Cert,
		KeyFile:   a.cfg.Key,
		Protocols: protocols,
		Report: func(err error) {
			if err != nil {
				a.log.Error(err, "Changed certificate files cannot be used; the last good ones stay")
				return
			}
			a.log.Info("Certificate files changed and are in use")
		},
	})
	if err != nil {
		return nil, fmt.Errorf("--ca-cert, --agent-cert, --agent-key: %w", err)
	}
	return conf, nil
}

// token reads the file anew for each attempt: it is rotated.
func (a *Agent) token() (string, error) {
	text, err := os.ReadFile(a.cfg.TokenPath)
	if err != nil {
		return "", fmt.Errorf("--service-account-token-path: %w", err)
	}
	token := string(bytes.TrimSpace(text))
	if token == "" || strings.ContainsAny(token, "\r\n") {
		return "", fmt.Errorf("--service-account-token-path=%s: holds no single token", a.cfg.TokenPath)
	}
	return token, nil
}
