package main

import (
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/culvert-proxy/culvert/internal/lease"
	"github.com/culvert-proxy/culvert/internal/options"
	"github.com/culvert-proxy/culvert/internal/server"
	"github.com/culvert-proxy/culvert/internal/server/backend"
	"github.com/culvert-proxy/culvert/internal/transport"
)

// validate checks the command line in the order of COMPAT 3.1, as changed by
// section 11, and returns what the server needs, besides warnings.
func (f *flags) validate() (cfg server.Config, warnings []string, err error) {
	if err := options.First(
		options.Pair("server-cert", f.serverCert, "server-key", f.serverKey),
		options.File("server-ca-cert", f.serverCA),
		options.Pair("cluster-cert", f.clusterCert, "cluster-key", f.clusterKey),
		options.File("cluster-ca-cert", f.clusterCA),
		options.OneOf("mode", f.mode, string(server.ModeGRPC), string(server.ModeHTTPConnect)),
		f.validateFrontend(),
		options.Port("agent-port", f.agentPort),
		options.Port("admin-port", f.adminPort),
		options.Port("health-port", f.healthPort),
		options.Profiling(f.profiling, f.contentionProfiling),
		f.validateTokenAuth(),
		options.File("kubeconfig", f.kubeconfig),
		options.File("server-count-file", f.serverCountFile),
	); err != nil {
		return cfg, nil, err
	}
	strategies, repeated, err := backend.ParseStrategies(f.strategies)
	if err != nil {
		return cfg, nil, options.Invalid("proxy-strategies", f.strategies, "%v", err)
	}
	if len(repeated) > 0 {
		warnings = append(warnings, "--proxy-strategies="+f.strategies+": "+strings.Join(repeated, ", ")+" is named more than once, which has no effect")
	}
	if err := f.validateBounds(); err != nil {
		return cfg, nil, err
	}
	minVersion, suites, warning, err := f.tls()
	if err != nil {
		return cfg, nil, err
	}
	if warning != "" {
		warnings = append(warnings, warning)
	}
	if f.serverCount < 1 {
		warnings = append(warnings, "--server-count="+strconv.Itoa(f.serverCount)+": agents take a count below 1 as unknown, which is 1")
	}
	if err := f.validateIdentity(); err != nil {
		return cfg, nil, err
	}
	return f.config(strategies, minVersion, suites), warnings, nil
}

func (f *flags) validateFrontend() error {
	if f.udsName == "" {
		if f.serverCA == "" {
			return options.Invalid("server-ca-cert", "", "needed for a TCP frontend: its clients must present certificates (or set --uds-name)")
		}
		if err := options.Port("server-port", f.serverPort); err != nil {
			return err
		}
		if f.serverCert == "" {
			return options.Invalid("server-cert", "", "needed for a TCP frontend, with --server-key")
		}
		return nil
	}
	if f.serverPort != 0 {
		return options.Invalid("server-port", f.serverPort, "must be 0 with --uds-name")
	}
	for _, file := range []struct{ flag, value string }{
		{"server-key", f.serverKey}, {"server-cert", f.serverCert}, {"server-ca-cert", f.serverCA},
	} {
		if file.value != "" {
			return options.Invalid(file.flag, file.value, "must be empty with --uds-name: a Unix socket has no TLS")
		}
	}
	return nil
}

// validateTokenAuth: all three or none; and none, until it is built.
func (f *flags) validateTokenAuth() error {
	three := []struct{ flag, value string }{
		{"agent-namespace", f.agentNamespace},
		{"agent-service-account", f.agentAccount},
		{"authentication-audience", f.audience},
	}
	set := slices.IndexFunc(three, func(p struct{ flag, value string }) bool { return p.value != "" })
	if set < 0 {
		return nil
	}
	for _, p := range three {
		if p.value == "" {
			return options.Invalid(three[set].flag, three[set].value, "token authentication needs --%s too", p.flag)
		}
	}
	return options.NotBuilt("agent-namespace", f.agentNamespace)
}

func (f *flags) validateBounds() error {
	if _, err := lease.ParseLabels(f.leaseLabel); err != nil {
		return options.Invalid("lease-label", f.leaseLabel, "%v", err)
	}
	if f.leaseController && f.serverCountFile != "" {
		return options.Invalid("server-count-file", f.serverCountFile, "excludes --enable-lease-controller: only one of them can hold")
	}
	return options.First(
		options.Positive("xfr-channel-size", f.xfrChannelSize),
		options.NotNegative("graceful-shutdown-timeout", f.gracefulShutdown),
		options.NotNegative("backend-dial-timeout", f.backendDialTimeout),
		options.NotNegative("close-timeout", f.closeTimeout),
		options.NotNegative("half-close-timeout", f.halfCloseTimeout),
		options.NotNegative("stuck-tunnel-timeout", f.stuckTimeout),
		options.Positive("dial-attempts", f.dialAttempts),
		options.Positive("max-pending-dials", f.maxPendingDials),
		f.logging.Validate(),
	)
}

func (f *flags) tls() (version uint16, suites []uint16, warning string, err error) {
	version, err = transport.ParseMinVersion(f.tlsMinVersion)
	if err != nil {
		return 0, nil, "", options.Invalid("tls-min-version", f.tlsMinVersion, "%v", err)
	}
	suites, err = transport.ParseCipherSuites(f.cipherSuites)
	if err != nil {
		return 0, nil, "", options.Invalid("cipher-suites", f.cipherSuites, "%v", err)
	}
	if f.tlsMinVersion == "VersionTLS10" || f.tlsMinVersion == "VersionTLS11" {
		warning = "--tls-min-version=" + f.tlsMinVersion + ": versions below TLS 1.2 are not safe"
	}
	return version, suites, warning, nil
}

// validateIdentity holds what is fatal at start though every single flag is fine.
func (f *flags) validateIdentity() error {
	if f.clusterCert == "" {
		return options.Invalid("cluster-cert", "", "needed, with --cluster-key: agents connect over TLS only")
	}
	if f.clusterCA == "" && !f.allowUnauthenticated {
		return options.Invalid("cluster-ca-cert", "", "nothing proves who an agent is; set this, or token authentication, or --insecure-allow-unauthenticated-agents to accept that")
	}
	return nil
}

func (f *flags) config(strategies []backend.Strategy, minVersion uint16, suites []uint16) server.Config {
	labels, err := lease.ParseLabels(f.leaseLabel)
	if err != nil {
		labels = nil // refused by validate already
	}
	return server.Config{
		ServerID:                   f.serverID,
		Mode:                       server.Mode(f.mode),
		UDSName:                    f.udsName,
		DeleteExistingUDS:          f.deleteUDS,
		ServerAddress:              address(f.serverBind, f.serverPort),
		Frontend:                   server.TLSFiles{Cert: f.serverCert, Key: f.serverKey, CA: f.serverCA},
		AgentAddress:               address(f.agentBind, f.agentPort),
		Cluster:                    server.TLSFiles{Cert: f.clusterCert, Key: f.clusterKey, CA: f.clusterCA},
		AllowUnauthenticatedAgents: f.allowUnauthenticated,
		HealthAddress:              address(f.healthBind, f.healthPort),
		AdminAddress:               address(f.adminBind, f.adminPort),
		TLSMinVersion:              minVersion,
		CipherSuites:               suites,
		KeepaliveTime:              f.keepalive,
		FrontendKeepaliveTime:      f.frontendKeepalive,
		Profiling:                  f.profiling,
		ContentionProfiling:        f.contentionProfiling,
		ServerCount:                f.serverCount,
		ServerCountFile:            f.serverCountFile,
		LeaseController:            f.leaseController,
		LeaseNamespace:             f.leaseNamespace,
		LeaseLabels:                labels,
		Kube:                       lease.ClientConfig{Kubeconfig: f.kubeconfig, ContentType: f.kubeContentType, QPS: f.kubeQPS, Burst: f.kubeBurst},
		Strategies:                 strategies,
		FailureZone:                f.failureZone,
		GracefulShutdownTimeout:    f.gracefulShutdown,
		BackendDialTimeout:         f.backendDialTimeout,
		DialAttempts:               f.dialAttempts,
		CloseTimeout:               f.closeTimeout,
		HalfCloseTimeout:           f.halfCloseTimeout,
		StuckTunnelTimeout:         f.stuckTimeout,
		MaxPendingDials:            f.maxPendingDials,
		MaxTunnels:                 f.maxTunnels,
		FlowBudget:                 int64(f.flowBudget),
		QueueSize:                  f.xfrChannelSize,
		DisableExtensions:          f.disableExtensions,
	}
}

func address(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
