package main

import (
	"cmp"
	"io"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"

	"github.com/culvert-proxy/culvert/internal/options"
)

// flags holds the command line as typed. Names, types and defaults are those of
// COMPAT 3.1, as changed by section 11; flags that are Culvert's own come last.
type flags struct {
	set     *pflag.FlagSet
	logging *options.Logging

	serverCert, serverKey, serverCA    string
	clusterCert, clusterKey, clusterCA string
	mode                               string
	udsName                            string
	deleteUDS                          bool
	serverPort, agentPort              int
	healthPort, adminPort              int
	serverBind, agentBind              string
	healthBind, adminBind              string
	keepalive, frontendKeepalive       time.Duration
	profiling, contentionProfiling     bool
	serverID                           string
	serverCount                        int
	serverCountFile                    string
	agentNamespace, agentAccount       string
	audience                           string
	kubeconfig                         string
	kubeQPS                            float32
	kubeBurst                          int
	kubeContentType                    string
	strategies                         string
	cipherSuites                       []string
	tlsMinVersion                      string
	xfrChannelSize                     int
	leaseController                    bool
	leaseNamespace, leaseLabel         string
	gracefulShutdown                   time.Duration
	backendDialTimeout                 time.Duration
	warnOnChannelLimit                 bool

	allowUnauthenticated bool
	closeTimeout         time.Duration
	halfCloseTimeout     time.Duration
	stuckTimeout         time.Duration
	dialAttempts         int
	failureZone          string
	flowBudget           options.Bytes
	maxPendingDials      int
	maxTunnels           int
	disableExtensions    bool
}

// newFlags defines every flag. getenv is os.Getenv; the ID's default comes from
// PROXY_SERVER_ID when that is not empty, else it is a fresh UUID. COMPAT 3.0.
func newFlags(stderr io.Writer, getenv func(string) string) *flags {
	f := &flags{set: options.NewFlagSet("proxy", about, stderr), flowBudget: 1 << 30}
	f.defineFrontend()
	f.defineAgentSide()
	f.defineKube()
	f.defineBehaviour(cmp.Or(getenv("PROXY_SERVER_ID"), uuid.NewString()))
	f.defineOwn()
	f.logging = options.AddLogging(f.set)
	return f
}

const about = `Culvert's proxy-server: takes connections from kube-apiserver (gRPC or HTTP CONNECT)
and carries them over the streams of its agents to endpoints in the cluster network.`

func (f *flags) defineFrontend() {
	s := f.set
	s.StringVar(&f.mode, "mode", "grpc", "frontend protocol: grpc or http-connect")
	s.StringVar(&f.udsName, "uds-name", "", "path of a Unix socket for the frontend; when set, the frontend listens there and --server-port must be 0")
	s.BoolVar(&f.deleteUDS, "delete-existing-uds-file", true, "remove what is at --uds-name before listening")
	s.IntVar(&f.serverPort, "server-port", 8090, "TCP port of the frontend (mutual TLS); 0 with --uds-name")
	s.StringVar(&f.serverBind, "server-bind-address", "", "address of the frontend's TCP listener; empty means all, IPv4 and IPv6")
	s.StringVar(&f.serverCert, "server-cert", "", "certificate file of the frontend's TCP listener")
	s.StringVar(&f.serverKey, "server-key", "", "key file of --server-cert")
	s.StringVar(&f.serverCA, "server-ca-cert", "", "CA file that frontend clients' certificates must chain to")
	s.DurationVar(&f.frontendKeepalive, "frontend-keepalive-time", time.Hour, "idle time after which a gRPC frontend client is pinged")
	s.StringSliceVar(&f.cipherSuites, "cipher-suites", nil, "TLS 1.2 cipher suites by their Go names, comma-separated or repeated; empty means Go's choice")
	s.StringVar(&f.tlsMinVersion, "tls-min-version", "", "lowest TLS version of both listeners: VersionTLS10, VersionTLS11, VersionTLS12 (used when empty) or VersionTLS13")
}

func (f *flags) defineAgentSide() {
	s := f.set
	s.IntVar(&f.agentPort, "agent-port", 8091, "TCP port where agents connect (TLS)")
	s.StringVar(&f.agentBind, "agent-bind-address", "", "address of the agents' listener; empty means all, IPv4 and IPv6")
	s.StringVar(&f.clusterCert, "cluster-cert", "", "certificate file of the agents' listener; always needed")
	s.StringVar(&f.clusterKey, "cluster-key", "", "key file of --cluster-cert")
	s.StringVar(&f.clusterCA, "cluster-ca-cert", "", "CA file that agents' certificates must chain to; empty means that agents need no certificate")
	s.DurationVar(&f.keepalive, "keepalive-time", 15*time.Second, "idle time after which an agent's connection is pinged; one that does not answer within 10s is dropped")
	s.StringVar(&f.agentNamespace, "agent-namespace", "", "token authentication: namespace of the agents' service account; set together with --agent-service-account and --authentication-audience")
	s.StringVar(&f.agentAccount, "agent-service-account", "", "token authentication: name of the agents' service account")
	s.StringVar(&f.audience, "authentication-audience", "", "token authentication: audience that an agent's token must be valid for")
	s.BoolVar(&f.allowUnauthenticated, "insecure-allow-unauthenticated-agents", false, "start although nothing proves who an agent is (neither --cluster-ca-cert nor token authentication)")
}

func (f *flags) defineKube() {
	s := f.set
	s.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file for the Kubernetes API; empty means the pod's own account")
	s.Float32Var(&f.kubeQPS, "kubeconfig-qps", 0, "requests per second to the Kubernetes API; 0 means the client's default")
	s.IntVar(&f.kubeBurst, "kubeconfig-burst", 0, "burst of requests to the Kubernetes API; 0 means the client's default")
	s.StringVar(&f.kubeContentType, "kube-api-content-type", "application/vnd.kubernetes.protobuf", "content type of requests to the Kubernetes API")
	s.BoolVar(&f.leaseController, "enable-lease-controller", false, "publish a Lease for this server, renew it, and collect expired ones")
	s.StringVar(&f.leaseNamespace, "lease-namespace", "kube-system", "namespace of the servers' Leases")
	s.StringVar(&f.leaseLabel, "lease-label", "k8s-app=konnectivity-server", "labels of this server's Lease, and selector of those it collects: a comma-separated list of key=value")
}

func (f *flags) defineBehaviour(id string) {
	s := f.set
	s.IntVar(&f.healthPort, "health-port", 8092, "TCP port of health checks and metrics")
	s.StringVar(&f.healthBind, "health-bind-address", "", "address of the health listener; empty means all")
	s.IntVar(&f.adminPort, "admin-port", 8095, "TCP port of metrics, status page and profiling")
	s.StringVar(&f.adminBind, "admin-bind-address", "127.0.0.1", "address of the admin listener; set to empty it means all")
	s.BoolVar(&f.profiling, "enable-profiling", false, "serve /debug/pprof/ on the admin port")
	s.BoolVar(&f.contentionProfiling, "enable-contention-profiling", false, "record goroutines that block; needs --enable-profiling")
	s.StringVar(&f.serverID, "server-id", id, "name of this server, unique among those of a cluster (environment: PROXY_SERVER_ID)")
	s.Lookup("server-id").DefValue = "PROXY_SERVER_ID or a new UUID"
	s.IntVar(&f.serverCount, "server-count", 1, "number of servers that agents are told to connect to")
	s.StringVar(&f.serverCountFile, "server-count-file", "", "file that holds the number of servers instead; changes are followed and told to agents")
	s.StringVar(&f.strategies, "proxy-strategies", "default", "how a backend is chosen: a comma-separated, ordered list of destHost, destCIDR, defaultRoute and default")
	s.IntVar(&f.xfrChannelSize, "xfr-channel-size", 10, "packets that may wait for one tunnel of an agent without flow control")
	s.DurationVar(&f.gracefulShutdown, "graceful-shutdown-timeout", 0, "how long open tunnels may go on after SIGTERM; 0 ends them at once, with an answer")
	s.DurationVar(&f.backendDialTimeout, "backend-dial-timeout", 7*time.Second, "how long a backend may leave a dial unanswered before the next one is tried; 0 means no limit")
	s.BoolVar(&f.warnOnChannelLimit, "warn-on-channel-limit", true, "no effect")
	s.MarkHidden("warn-on-channel-limit")                                    //nolint:errcheck // defined on the line above
	s.MarkDeprecated("warn-on-channel-limit", "it has no effect; remove it") //nolint:errcheck // the same
}

func (f *flags) defineOwn() {
	s := f.set
	s.DurationVar(&f.closeTimeout, "close-timeout", 10*time.Second, "how long the rest of a closed tunnel may make no progress before it is given up")
	s.DurationVar(&f.halfCloseTimeout, "half-close-timeout", 5*time.Minute, "how long a tunnel that one side has half-closed may stay silent")
	s.DurationVar(&f.stuckTimeout, "stuck-tunnel-timeout", 10*time.Second, "how long one tunnel of an agent without flow control may stall the agent's stream, at once or within a minute")
	s.IntVar(&f.dialAttempts, "dial-attempts", 3, "backends that one dial may try")
	s.StringVar(&f.failureZone, "failure-zone", "", "failure zone of this server; agents of the same zone are preferred")
	s.Var(&f.flowBudget, "flow-budget", "memory that all tunnels together may have granted as credit; new tunnels get smaller windows as it fills")
	s.IntVar(&f.maxPendingDials, "max-pending-dials", 10000, "dials that may wait for an answer at once; more are refused")
	s.IntVar(&f.maxTunnels, "max-tunnels", 0, "tunnels that may be open at once; 0 means no limit")
	s.BoolVar(&f.disableExtensions, "disable-extensions", false, "speak the plain protocol with every peer")
}

// environment is the process's.
func environment(key string) string { return os.Getenv(key) }
