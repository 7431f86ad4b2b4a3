package serverlink

import (
	"context"
	"net"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Config describes how an agent connects to its servers. It is not changed
// after New.
type Config struct {
	AgentID string
	// Identifiers gives what is presented (COMPAT 7.3) in one attempt; nil for
	// none. An error is one of the attempt.
	Identifiers func(ctx context.Context) (string, error)
	// Instance is a UUID of this process; it, the agent ID and the slot make a
	// server see that a link is a successor of another one.
	Instance string
	// Extensions are offered to servers; none makes this an old agent.
	Extensions wire.Extensions

	// Credentials secure the connection. ClientHandshake is given the target's
	// host as authority.
	Credentials credentials.TransportCredentials
	// Dial opens a TCP connection to host:port.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// ProxyFor says which HTTP proxy is used for a URL; nil for none. See
	// EnvironmentProxy.
	ProxyFor func(*url.URL) (*url.URL, error)
	// Token gives the bearer token for one attempt; nil if none is presented.
	// White space around it is trimmed.
	Token func() (string, error)

	// Keepalive is how a silent server is pinged with HTTP/2, whatever it can
	// do; old servers allow no more than one ping every 30 s (COMPAT 7.6).
	Keepalive keepalive.ClientParameters
	// StageTimeout bounds each stage of connecting. 10 s if 0.
	StageTimeout time.Duration
	// Link holds the limits of a link; its stream and extensions are filled in.
	Link link.Config
}

// slot names the link in knp-link. An agent has at most one link that it means
// to keep to each server, so all have the same: a new link takes the place of
// the one that its server still holds for lost.
const slot = "0"

// Sizes in bytes.
const (
	// newWindow is the HTTP/2 window of links and their connections while the
	// server is not known to be an old one. It must never be the limit where
	// credit is: the sum of all tunnels' windows on the way. What it could let
	// pile up is bounded by the credit that this agent has granted.
	newWindow = 64 << 20
	// oldWindow is the same for servers without credit. There the reader may
	// wait for one tunnel, and what piles up meanwhile is all a window.
	oldWindow = 1 << 20

	maxMessage  = 16 << 20
	readBuffer  = 32 << 10
	writeBuffer = 32 << 10
)

// Target is one address to connect to.
type Target struct {
	Host    string // name or IP address that the server's certificate must hold
	Address string // host:port to connect to, usually an IP address
}

// authority is the :authority of the link: the host as configured, which is
// what agents have always sent, unless an IPv6 address would make it ambiguous.
func (t Target) authority() string {
	if strings.Contains(t.Host, ":") {
		_, port, err := net.SplitHostPort(t.Address)
		if err != nil {
			port = "443"
		}
		return net.JoinHostPort(t.Host, port)
	}
	return t.Host
}
