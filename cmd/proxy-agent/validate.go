package main

import (
	"net"
	"strconv"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/culvert-proxy/culvert/internal/agent"
	"github.com/culvert-proxy/culvert/internal/agent/nodeinfo"
	"github.com/culvert-proxy/culvert/internal/lease"
	"github.com/culvert-proxy/culvert/internal/options"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// validate checks the command line in the order of COMPAT 3.2, as changed by
// section 11, and returns what the agent needs.
func (f *flags) validate() (agent.Config, error) {
	if err := options.First(
		options.Pair("agent-cert", f.agentCert, "agent-key", f.agentKey),
		options.File("ca-cert", f.caCert),
		f.validateHosts(),
		options.Port("proxy-server-port", f.serverPort),
		options.Port("health-server-port", f.healthPort),
		options.Port("admin-server-port", f.adminPort),
		options.Positive("xfr-channel-size", f.xfrChannelSize),
		options.Profiling(f.profiling, f.contentionProfiling),
		f.validateIntervals(),
		options.File("service-account-token-path", f.tokenPath),
		f.validateIdentifiers(),
		f.validateNode(),
		options.File("kubeconfig", f.kubeconfig),
		options.File("server-count-file", f.serverCountFile),
		options.OneOf("server-count-source", f.countSource, "", "default", "max"),
		f.validateLeases(),
		f.logging.Validate(),
	); err != nil {
		return agent.Config{}, err
	}
	if f.caCert == "" {
		return agent.Config{}, options.Invalid("ca-cert", "", "needed: the agent connects only to servers that it can verify")
	}
	return f.config(), nil
}

func (f *flags) validateHosts() error {
	if len(f.serverHosts) == 0 {
		return options.Invalid("proxy-server-host", "", "needs at least one host")
	}
	for _, host := range f.serverHosts {
		if host == "" {
			return options.Invalid("proxy-server-host", f.serverHosts, "a host is empty")
		}
	}
	return nil
}

func (f *flags) validateIntervals() error {
	if f.syncInterval > f.syncIntervalCap {
		return options.Invalid("sync-interval", f.syncInterval, "must not be larger than --sync-interval-cap=%s", f.syncIntervalCap)
	}
	return options.First(
		options.NotNegative("sync-interval", f.syncInterval),
		options.NotNegative("keepalive-time", f.keepalive),
		options.NotNegative("dial-timeout", f.dialTimeout),
		options.NotNegative("close-timeout", f.closeTimeout),
		options.NotNegative("half-close-timeout", f.halfCloseTimeout),
		options.NotNegative("stuck-tunnel-timeout", f.stuckTimeout),
		options.NotNegative("lame-duck", f.lameDuck),
		options.NotNegative("drain-timeout", f.drainTimeout),
	)
}

func (f *flags) validateIdentifiers() error {
	if _, err := wire.ParseIdentifiers(f.identifiers); err != nil {
		return options.Invalid("agent-identifiers", f.identifiers, "%v", err)
	}
	return nil
}

// validateNode checks the name of a Node that was given, an empty one too: it is
// what an environment variable without a value leaves.
func (f *flags) validateNode() error {
	if _, err := nodeinfo.ParseParts(f.fromNodeKeys); err != nil {
		return options.Invalid("identifiers-from-node-keys", f.fromNodeKeys, "%v", err)
	}
	if !f.set.Changed("identifiers-from-node") {
		if f.set.Changed("identifiers-from-node-keys") {
			return options.Invalid("identifiers-from-node-keys", f.fromNodeKeys, "needs --identifiers-from-node")
		}
		return nil
	}
	if err := nodeinfo.CheckName(f.fromNode); err != nil {
		return options.Invalid("identifiers-from-node", f.fromNode, "%v", err)
	}
	return nil
}

func (f *flags) validateLeases() error {
	if _, err := labels.Parse(f.leaseSelector); err != nil {
		return options.Invalid("lease-label-selector", f.leaseSelector, "%v", err)
	}
	if f.countLeases && f.serverCountFile != "" {
		return options.Invalid("server-count-file", f.serverCountFile, "excludes --count-server-leases: only one of them can hold")
	}
	if f.countSource == "max" && f.set.Changed("respect-received-server-count") && !f.respectReceived {
		return options.Invalid("server-count-source", f.countSource, "needs --respect-received-server-count")
	}
	return nil
}

// respect is nil unless the flag was given: its default depends on others.
func (f *flags) respect() *bool {
	if !f.set.Changed("respect-received-server-count") {
		return nil
	}
	return &f.respectReceived
}

func (f *flags) config() agent.Config {
	return agent.Config{
		AgentID:             f.agentID,
		Identifiers:         f.identifiers,
		IdentifiersFromNode: f.fromNode,
		NodeParts:           f.nodeParts(),
		ServerHosts:         f.serverHosts,
		ServerPort:          f.serverPort,
		CA:                  f.caCert,
		Cert:                f.agentCert,
		Key:                 f.agentKey,
		ALPN:                f.alpn,
		TokenPath:           f.tokenPath,
		HealthAddress:       address(f.healthHost, f.healthPort),
		AdminAddress:        address(f.adminBind, f.adminPort),
		SyncInterval:        f.syncInterval,
		SyncIntervalCap:     f.syncIntervalCap,
		SyncForever:         f.syncForever,
		CountLeases:         f.countLeases,
		LeaseNamespace:      f.leaseNamespace,
		LeaseSelector:       f.leaseSelector,
		Kube:                lease.ClientConfig{Kubeconfig: f.kubeconfig, ContentType: f.kubeContentType},
		ServerCountFile:     f.serverCountFile,
		CountSource:         f.countSource,
		RespectReceived:     f.respect(),
		KeepaliveTime:       f.keepalive,
		Profiling:           f.profiling,
		ContentionProfiling: f.contentionProfiling,
		QueueSize:           f.xfrChannelSize,
		DialTimeout:         f.dialTimeout,
		CloseTimeout:        f.closeTimeout,
		HalfCloseTimeout:    f.halfCloseTimeout,
		StuckTunnelTimeout:  f.stuckTimeout,
		LameDuck:            f.lameDuck,
		DrainTimeout:        f.drainTimeout,
		FlowBudget:          int64(f.flowBudget),
		DisableExtensions:   f.disableExtensions,
	}
}

func (f *flags) nodeParts() []nodeinfo.Part {
	parts, err := nodeinfo.ParseParts(f.fromNodeKeys)
	if err != nil {
		return nil // refused by validate already
	}
	return parts
}

// decodedIdentifiers lists the pairs for the log, one each.
func (f *flags) decodedIdentifiers() []wire.Identifier {
	ids, err := wire.ParseIdentifiers(f.identifiers)
	if err != nil {
		return nil // refused by validate already
	}
	return ids.Pairs
}

func address(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
