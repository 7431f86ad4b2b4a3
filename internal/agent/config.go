package agent

import (
	"time"

	"github.com/culvert-proxy/culvert/internal/agent/nodeinfo"
	"github.com/culvert-proxy/culvert/internal/lease"
)

// Config is everything that the command line of a proxy-agent decides. It is
// not changed after New.
type Config struct {
	AgentID     string
	Identifiers string // URL-query form, plain or percent-encoded
	// IdentifiersFromNode names a Node object whose NodeParts are presented too;
	// "" for none. It needs Kube.
	IdentifiersFromNode string
	NodeParts           []nodeinfo.Part

	// ServerHosts are tried in rotation, every address behind each name.
	ServerHosts []string
	ServerPort  int
	CA          string // file; verifies servers
	Cert, Key   string // files; may be empty
	ALPN        []string
	TokenPath   string

	HealthAddress string // host:port
	AdminAddress  string // host:port

	SyncInterval    time.Duration
	SyncIntervalCap time.Duration
	SyncForever     bool
	// CountLeases, or ServerCountFile, is a way of its own to count the servers;
	// CountSource ("", "default" or "max") and RespectReceived say how it goes
	// together with what servers answer.
	CountLeases     bool
	LeaseNamespace  string
	LeaseSelector   string
	Kube            lease.ClientConfig
	ServerCountFile string
	CountSource     string
	RespectReceived *bool // nil: the default of the two cases

	KeepaliveTime time.Duration // ping towards servers without extension "ping"

	Profiling           bool
	ContentionProfiling bool

	// QueueSize is --xfr-channel-size in chunks; it bounds what waits for one
	// endpoint behind an old server.
	QueueSize          int
	DialTimeout        time.Duration // of an endpoint, name resolution included
	CloseTimeout       time.Duration
	HalfCloseTimeout   time.Duration
	StuckTunnelTimeout time.Duration
	LameDuck           time.Duration
	DrainTimeout       time.Duration // 0: no bound
	FlowBudget         int64         // bytes

	DisableExtensions bool
}
