package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Resolver turns names into addresses; a *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
	LookupPort(ctx context.Context, network, service string) (int, error)
}

// NetDialerConfig describes a NetDialer. The zero value dials anything.
type NetDialerConfig struct {
	Resolver Resolver // nil: net.DefaultResolver
	// Policy refuses destinations: it is asked for each address right before it
	// is connected to, when its name is resolved. An unspecified address, which
	// reaches the agent's own host, is shown as loopback. May be nil.
	Policy func(network string, address netip.AddrPort) error
	// Connect connects to one address; nil: net.Dialer with a keepalive of 15 s.
	Connect func(ctx context.Context, network, address string) (net.Conn, error)
}

// NetDialer dials TCP endpoints. All addresses of a name are tried, in the
// manner of RFC 8305: IPv6 and IPv4 in turns, the next one when one has failed
// or has not answered for a moment, so that a dead address costs no more than
// that. Its errors read like those of package net, on which old servers' HTTP
// statuses depend (COMPAT 1.7, 2.4). Safe for concurrent use.
type NetDialer struct {
	cfg NetDialerConfig
}

// NewNetDialer returns a dialer.
func NewNetDialer(cfg NetDialerConfig) *NetDialer {
	if cfg.Resolver == nil {
		cfg.Resolver = net.DefaultResolver
	}
	if cfg.Connect == nil {
		cfg.Connect = (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext
	}
	return &NetDialer{cfg: cfg}
}

// Dial connects to address, host:port; network is tcp, tcp4 or tcp6. The
// deadline of ctx covers the resolving of the name too.
func (d *NetDialer) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := d.split(ctx, network, address)
	if err != nil {
		return nil, err
	}
	addrs, err := d.resolve(ctx, network, host)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	targets := make([]netip.AddrPort, len(addrs))
	for i, a := range interleave(addrs) {
		targets[i] = netip.AddrPortFrom(a, port)
	}
	if len(targets) == 1 {
		return d.connect(ctx, network, targets[0])
	}
	return d.race(ctx, network, targets)
}

// split cuts address into host and port, which may be a service's name.
func (d *NetDialer) split(ctx context.Context, network, address string) (string, uint16, error) {
	fail := func(err error) (string, uint16, error) {
		return "", 0, &wire.DialError{
			Reason: wire.ReasonBadAddress,
			Err:    &net.OpError{Op: "dial", Net: network, Err: err},
		}
	}
	if address == "" {
		return fail(errors.New("missing address"))
	}
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return fail(err)
	}
	port, err := d.cfg.Resolver.LookupPort(ctx, network, service)
	if err != nil {
		return fail(err)
	}
	return host, uint16(port), nil
}

// resolve returns the addresses of host that network can reach, at least one.
func (d *NetDialer) resolve(ctx context.Context, network, host string) ([]netip.Addr, error) {
	addrs, err := d.lookup(ctx, network, host)
	if err != nil {
		return nil, err
	}
	fit := make([]netip.Addr, 0, len(addrs))
	for _, a := range addrs {
		a = a.Unmap()
		if network == "tcp" || a.Is4() == (network == "tcp4") {
			fit = append(fit, a)
		}
	}
	if len(fit) == 0 {
		return nil, &net.AddrError{Err: "no suitable address found", Addr: host}
	}
	return fit, nil
}

func (d *NetDialer) lookup(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if host == "" { // the agent's own host, as with package net
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, nil
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	return d.cfg.Resolver.LookupNetIP(ctx, "ip"+network[len("tcp"):], host)
}

// interleave orders addresses so that the families take turns, beginning with
// that of the first (RFC 8305, section 4).
func interleave(addrs []netip.Addr) []netip.Addr {
	if len(addrs) < 3 {
		return addrs
	}
	var first, second []netip.Addr
	for _, a := range addrs {
		if a.Is4() == addrs[0].Is4() {
			first = append(first, a)
		} else {
			second = append(second, a)
		}
	}
	mixed := make([]netip.Addr, 0, len(addrs))
	for i := range max(len(first), len(second)) {
		if i < len(first) {
			mixed = append(mixed, first[i])
		}
		if i < len(second) {
			mixed = append(mixed, second[i])
		}
	}
	return mixed
}

// connect connects to one address if the policy allows it.
func (d *NetDialer) connect(ctx context.Context, network string, target netip.AddrPort) (net.Conn, error) {
	if d.cfg.Policy != nil {
		if err := d.cfg.Policy(network, reached(target)); err != nil {
			return nil, &wire.DialError{
				Reason: wire.ReasonPolicy,
				Err:    fmt.Errorf("dial %s %s: %w", network, target, err),
			}
		}
	}
	return d.cfg.Connect(ctx, network, target.String())
}

// reached is the address that a connection to target really reaches.
func reached(target netip.AddrPort) netip.AddrPort {
	switch a := target.Addr(); {
	case !a.IsUnspecified():
		return target
	case a.Is4():
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), target.Port())
	}
	return netip.AddrPortFrom(netip.IPv6Loopback(), target.Port())
}
