package main

import (
	"cmp"
	"io"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"

	"github.com/culvert-proxy/culvert/internal/agent/nodeinfo"
	"github.com/culvert-proxy/culvert/internal/options"
)

// flags holds the command line as typed. Names, types and defaults are those of
// COMPAT 3.2, as changed by section 11; flags that are Culvert's own come last.
type flags struct {
	set     *pflag.FlagSet
	logging *options.Logging

	agentCert, agentKey, caCert    string
	serverHosts                    []string
	serverPort                     int
	alpn                           []string
	healthHost, adminBind          string
	healthPort, adminPort          int
	profiling, contentionProfiling bool
	agentID, identifiers           string
	fromNode, fromNodeKeys         string
	syncInterval, syncIntervalCap  time.Duration
	probeInterval, keepalive       time.Duration
	tokenPath                      string
	warnOnChannelLimit             bool
	syncForever                    bool
	xfrChannelSize                 int
	countLeases                    bool
	leaseNamespace, leaseSelector  string
	countSource                    string
	kubeconfig, kubeContentType    string
	serverCountFile                string
	respectReceived                bool

	dialTimeout       time.Duration
	closeTimeout      time.Duration
	halfCloseTimeout  time.Duration
	stuckTimeout      time.Duration
	lameDuck          time.Duration
	drainTimeout      time.Duration
	flowBudget        options.Bytes
	disableExtensions bool
}

const about = `Culvert's proxy-agent: connects from the cluster network to the proxy-servers and
dials the endpoints that their clients ask for.`

// newFlags defines every flag. The ID's default comes from PROXY_AGENT_ID when
// that is not empty, else it is a fresh UUID. COMPAT 3.0.
func newFlags(stderr io.Writer, getenv func(string) string) *flags {
	f := &flags{set: options.NewFlagSet("agent", about, stderr), flowBudget: 1 << 30}
	f.defineServers()
	f.defineSelf(cmp.Or(getenv("PROXY_AGENT_ID"), uuid.NewString()))
	f.defineCounting()
	f.defineOwn()
	f.logging = options.AddLogging(f.set)
	return f
}

func (f *flags) defineServers() {
	s := f.set
	s.StringVar(&f.agentCert, "agent-cert", "", "client certificate file")
	s.StringVar(&f.agentKey, "agent-key", "", "key file of --agent-cert")
	s.StringVar(&f.caCert, "ca-cert", "", "CA file that servers' certificates must chain to; always needed")
	s.StringSliceVar(&f.serverHosts, "proxy-server-host", []string{"127.0.0.1"}, "host of the proxy-servers, which is also the name in their certificate; several may be given, comma-separated or repeated, and are tried in turn")
	s.IntVar(&f.serverPort, "proxy-server-port", 8091, "port of the proxy-servers")
	s.StringSliceVar(&f.alpn, "alpn-proto", nil, "ALPN protocol names to offer before h2, comma-separated or repeated")
	s.DurationVar(&f.syncInterval, "sync-interval", time.Second, "time between attempts to connect to a missing server")
	s.DurationVar(&f.syncIntervalCap, "sync-interval-cap", 10*time.Second, "longest time between attempts, after failures")
	s.DurationVar(&f.probeInterval, "probe-interval", time.Second, "time between checks of a link's state")
	s.DurationVar(&f.keepalive, "keepalive-time", 40*time.Second, "idle time after which a server is pinged")
	s.BoolVar(&f.syncForever, "sync-forever", false, "go on connecting even when enough servers are connected")
	s.StringVar(&f.tokenPath, "service-account-token-path", "", "file of a service account token to present to servers; read again for each connection")
}

func (f *flags) defineSelf(id string) {
	s := f.set
	s.StringVar(&f.agentID, "agent-id", id, "name of this agent, unique in its cluster (environment: PROXY_AGENT_ID)")
	s.Lookup("agent-id").DefValue = "PROXY_AGENT_ID or a new UUID"
	s.StringVar(&f.identifiers, "agent-identifiers", "", "destinations that this agent serves, as a URL query: keys host, ipv4, ipv6, cidr, default-route, failure-zone, exclude-default; for instance host=node1&ipv4=10.0.0.7&cidr=10.1.0.0/16")
	s.StringVar(&f.fromNode, "identifiers-from-node", "", "name of this agent's Node object, usually $(NODE_NAME): what it says of itself is presented beside --agent-identifiers, and read again when the agent reconnects")
	s.StringVar(&f.fromNodeKeys, "identifiers-from-node-keys", nodeinfo.Names(nodeinfo.Parts()), "what of the Node is used, a comma-separated list: addresses (IP and DNS), podCIDRs, hostname, zone (its failure zone)")
	s.StringVar(&f.healthHost, "health-server-host", "", "address of the health listener; empty means all")
	s.IntVar(&f.healthPort, "health-server-port", 8093, "TCP port of health checks and metrics")
	s.StringVar(&f.adminBind, "admin-bind-address", "127.0.0.1", "address of the admin listener; set to empty it means all")
	s.IntVar(&f.adminPort, "admin-server-port", 8094, "TCP port of the status page and profiling")
	s.BoolVar(&f.profiling, "enable-profiling", false, "serve /debug/pprof/ on the admin port")
	s.BoolVar(&f.contentionProfiling, "enable-contention-profiling", false, "record goroutines that block; needs --enable-profiling")
	s.BoolVar(&f.warnOnChannelLimit, "warn-on-channel-limit", false, "log when the queue of a tunnel is full")
	s.IntVar(&f.xfrChannelSize, "xfr-channel-size", 150, "chunks that may wait for one endpoint behind a server without flow control")
}

func (f *flags) defineCounting() {
	s := f.set
	s.BoolVar(&f.countLeases, "count-server-leases", false, "count the servers by their Leases")
	s.StringVar(&f.leaseNamespace, "lease-namespace", "kube-system", "namespace of the servers' Leases")
	s.StringVar(&f.leaseSelector, "lease-label-selector", "k8s-app=konnectivity-server", "label selector of the servers' Leases; empty selects all")
	s.StringVar(&f.leaseSelector, "lease-label", "k8s-app=konnectivity-server", "older name of --lease-label-selector")
	s.MarkHidden("lease-label")                                   //nolint:errcheck // defined on the line above
	s.MarkDeprecated("lease-label", "use --lease-label-selector") //nolint:errcheck // the same
	s.StringVar(&f.countSource, "server-count-source", "default", "which count of servers holds: default (Leases if they are counted, else what servers say) or max (the larger of both)")
	s.StringVar(&f.serverCountFile, "server-count-file", "", "file that holds the number of servers; changes are followed")
	s.BoolVar(&f.respectReceived, "respect-received-server-count", true, "heed the number that servers tell; off by default when the agent counts by itself (--count-server-leases or --server-count-file)")
	s.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file for the Kubernetes API; empty means the pod's own account")
	s.StringVar(&f.kubeContentType, "kube-api-content-type", "application/vnd.kubernetes.protobuf", "content type of requests to the Kubernetes API")
}

func (f *flags) defineOwn() {
	s := f.set
	s.DurationVar(&f.dialTimeout, "dial-timeout", 5*time.Second, "limit of one dial to an endpoint, name resolution included")
	s.DurationVar(&f.closeTimeout, "close-timeout", 10*time.Second, "how long the rest of a closed tunnel may make no progress before it is given up")
	s.DurationVar(&f.halfCloseTimeout, "half-close-timeout", 5*time.Minute, "how long a tunnel that one side has half-closed may stay silent")
	s.DurationVar(&f.stuckTimeout, "stuck-tunnel-timeout", 10*time.Second, "how long one tunnel of a server without flow control may stall the server's stream, at once or within a minute")
	s.DurationVar(&f.lameDuck, "lame-duck", 5*time.Second, "after SIGTERM, how long new dials are still served as a last resort")
	s.DurationVar(&f.drainTimeout, "drain-timeout", 0, "after SIGTERM, how long open tunnels may go on; 0 means as long as they like")
	s.Var(&f.flowBudget, "flow-budget", "memory that all tunnels together may have granted as credit; new tunnels get smaller windows as it fills")
	s.BoolVar(&f.disableExtensions, "disable-extensions", false, "speak the plain protocol with every server")
}

// environment is the process's.
func environment(key string) string { return os.Getenv(key) }
