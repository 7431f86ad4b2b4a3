package transport

import (
	"time"

	"google.golang.org/grpc/keepalive"
)

// Keepalive of HTTP/2, in both directions. COMPAT 7.6 and 11, DESIGN 4.6.
const (
	// DefaultAgentPing is the idle time before a server pings an agent.
	DefaultAgentPing = 15 * time.Second
	// DefaultServerPing is the idle time before an agent pings a server: servers
	// of the plain protocol end a connection that pings oftener than every 30 s.
	DefaultServerPing = 40 * time.Second
	// DefaultFrontendPing is the idle time before a server pings a frontend.
	DefaultFrontendPing = time.Hour

	agentPingTimeout  = 10 * time.Second
	serverPingTimeout = 20 * time.Second
	// AgentPingMin is how often an agent may ping, also without streams.
	AgentPingMin = 30 * time.Second
	// frontendPingMin is laxer than gRPC's own five minutes: nobody is hurt by
	// it, and a client that watches an idle tunnel is not thrown out.
	frontendPingMin = 10 * time.Second
)

// AgentKeepalive is the server's side on the agent port: how it pings agents
// that have been silent for idle, and how often they may ping. idle 0 means
// DefaultAgentPing.
func AgentKeepalive(idle time.Duration) (keepalive.ServerParameters, keepalive.EnforcementPolicy) {
	if idle <= 0 {
		idle = DefaultAgentPing
	}
	return keepalive.ServerParameters{Time: idle, Timeout: agentPingTimeout},
		keepalive.EnforcementPolicy{MinTime: AgentPingMin, PermitWithoutStream: true}
}

// FrontendKeepalive is the same for the gRPC frontend; idle 0 means
// DefaultFrontendPing.
func FrontendKeepalive(idle time.Duration) (keepalive.ServerParameters, keepalive.EnforcementPolicy) {
	if idle <= 0 {
		idle = DefaultFrontendPing
	}
	return keepalive.ServerParameters{Time: idle, Timeout: serverPingTimeout},
		keepalive.EnforcementPolicy{MinTime: frontendPingMin, PermitWithoutStream: true}
}

// ServerKeepalive is the agent's side: how it pings a server that has been silent
// for idle; 0 means DefaultServerPing.
func ServerKeepalive(idle time.Duration) keepalive.ClientParameters {
	if idle <= 0 {
		idle = DefaultServerPing
	}
	return keepalive.ClientParameters{Time: idle, Timeout: serverPingTimeout, PermitWithoutStream: true}
}
