package server

import (
	"time"

	"github.com/culvert-proxy/culvert/internal/lease"
	"github.com/culvert-proxy/culvert/internal/server/backend"
)

// Mode is the frontend protocol of a server.
type Mode string

// The frontend protocols. COMPAT 3.1.
const (
	ModeGRPC        Mode = "grpc"
	ModeHTTPConnect Mode = "http-connect"
)

// TLSFiles names the files of one TLS role; an empty CA means that no client
// certificate is asked for.
type TLSFiles struct {
	Cert, Key, CA string
}

// Config is everything that the command line of a proxy-server decides. It is
// not changed after New. Durations of 0 mean what the flag's help says.
type Config struct {
	ServerID string
	Mode     Mode

	// Frontend: a Unix socket if UDSName is set, else TCP with mutual TLS.
	UDSName           string
	DeleteExistingUDS bool
	ServerAddress     string // host:port
	Frontend          TLSFiles

	AgentAddress string // host:port
	Cluster      TLSFiles
	// AllowUnauthenticatedAgents accepts agents without any proof of identity.
	AllowUnauthenticatedAgents bool

	HealthAddress string // host:port
	AdminAddress  string // host:port

	TLSMinVersion uint16
	CipherSuites  []uint16

	KeepaliveTime         time.Duration // idle time before an agent is pinged by HTTP/2
	FrontendKeepaliveTime time.Duration

	Profiling           bool
	ContentionProfiling bool

	// ServerCount is what agents are told, unless a file or the lease
	// controller knows better.
	ServerCount     int
	ServerCountFile string
	LeaseController bool
	LeaseNamespace  string
	LeaseLabels     map[string]string
	Kube            lease.ClientConfig

	Strategies  []backend.Strategy
	FailureZone string

	GracefulShutdownTimeout time.Duration
	BackendDialTimeout      time.Duration // 0: no limit
	DialAttempts            int
	CloseTimeout            time.Duration
	HalfCloseTimeout        time.Duration
	StuckTunnelTimeout      time.Duration
	MaxPendingDials         int
	MaxTunnels              int   // 0: no limit
	FlowBudget              int64 // bytes of credit that may be out at once
	// QueueSize is --xfr-channel-size in packets; it bounds what waits for one
	// tunnel of an old agent, at 32 KiB a packet.
	QueueSize int

	DisableExtensions bool
}
