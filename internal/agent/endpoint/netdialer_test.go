package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// fakeHosts resolves names and connects: what an address does is in behaviour.
type fakeHosts struct {
	names     map[string][]netip.Addr
	behaviour map[string]error // by address with port; missing: answers; errSilent: never answers

	mu    sync.Mutex
	tried []string
	open  int
}

var errSilent = errors.New("silent")

func (f *fakeHosts) LookupPort(ctx context.Context, network, service string) (int, error) {
	return new(net.Resolver).LookupPort(ctx, network, service)
}

func (f *fakeHosts) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	switch host {
	case "slow":
		<-ctx.Done()
		return nil, &net.DNSError{Err: "i/o timeout", Name: host, IsTimeout: true, IsTemporary: true}
	case "servfail":
		return nil, &net.DNSError{Err: "server misbehaving", Name: host, IsTemporary: true}
	}
	if addrs, ok := f.names[host]; ok {
		return addrs, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, Server: "10.0.0.10:53", IsNotFound: true}
}

type fakeHostConn struct {
	net.Conn
	f *fakeHosts
}

func (c *fakeHostConn) Close() error {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.f.open--
	return nil
}

func (f *fakeHosts) connect(ctx context.Context, network, address string) (net.Conn, error) {
	f.mu.Lock()
	f.tried = append(f.tried, address)
	f.mu.Unlock()
	fail := func(err error) error {
		a, _ := net.ResolveTCPAddr("tcp", address)
		return &net.OpError{Op: "dial", Net: network, Addr: a, Err: err}
	}
	switch err := f.behaviour[address]; {
	case err == nil:
		f.mu.Lock()
		defer f.mu.Unlock()
		f.open++
		return &fakeHostConn{f: f}, nil
	case errors.Is(err, errSilent):
		<-ctx.Done()
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, fail(os.ErrDeadlineExceeded)
		}
		return nil, fail(ctx.Err())
	default:
		return nil, fail(err)
	}
}

func (f *fakeHosts) dialer() *NetDialer {
	return NewNetDialer(NetDialerConfig{Resolver: f, Connect: f.connect})
}

func addrs(list ...string) []netip.Addr {
	var all []netip.Addr
	for _, s := range list {
		all = append(all, netip.MustParseAddr(s))
	}
	return all
}

// TestDialTexts: reasons, and the texts of COMPAT 1.7 that old servers look at.
func TestDialTexts(t *testing.T) {
	refused := os.NewSyscallError("connect", syscall.ECONNREFUSED)
	f := &fakeHosts{
		names: map[string][]netip.Addr{"v6only": addrs("fd00::1"), "two": addrs("10.0.0.1", "10.0.0.2")},
		behaviour: map[string]error{
			"127.0.0.1:1":   refused,
			"10.0.0.1:80":   os.NewSyscallError("connect", syscall.EHOSTUNREACH),
			"10.0.0.2:80":   refused,
			"10.0.0.3:80":   os.NewSyscallError("socket", syscall.EMFILE),
			"10.0.0.4:80":   errSilent,
			"10.0.0.5:80":   os.NewSyscallError("connect", syscall.ENETUNREACH),
			"10.0.0.6:80":   os.NewSyscallError("connect", syscall.ETIMEDOUT),
			"10.0.0.7:80":   os.NewSyscallError("connect", syscall.EACCES),
			"[fd00::9]:443": refused,
		},
	}
	cases := []struct {
		network, address, text string
		reason                 wire.Reason
	}{
		{"tcp", "127.0.0.1:1", "dial tcp 127.0.0.1:1: connect: connection refused", wire.ReasonRefused},
		{"tcp", "[fd00::9]:443", "dial tcp [fd00::9]:443: connect: connection refused", wire.ReasonRefused},
		{"tcp", "nowhere.example:80", "dial tcp: lookup nowhere.example on 10.0.0.10:53: no such host", wire.ReasonUnknownHost},
		{"tcp", "servfail:80", "dial tcp: lookup servfail: server misbehaving", wire.ReasonDNSTemporary},
		{"tcp", "slow:80", "dial tcp: lookup slow: i/o timeout", wire.ReasonDNSTemporary},
		{"tcp", "10.0.0.4:80", "dial tcp 10.0.0.4:80: i/o timeout", wire.ReasonDialTimeout},
		{"tcp", "10.0.0.6:80", "dial tcp 10.0.0.6:80: connect: connection timed out", wire.ReasonDialTimeout},
		{"tcp", "10.0.0.1:80", "dial tcp 10.0.0.1:80: connect: no route to host", wire.ReasonUnreachable},
		{"tcp", "10.0.0.5:80", "dial tcp 10.0.0.5:80: connect: network is unreachable", wire.ReasonUnreachable},
		{"tcp", "10.0.0.3:80", "dial tcp 10.0.0.3:80: socket: too many open files", wire.ReasonTooManyFiles},
		{"tcp", "10.0.0.7:80", "dial tcp 10.0.0.7:80: connect: permission denied", wire.ReasonOther},
		{"tcp", "two:80", "dial tcp 10.0.0.1:80: connect: no route to host", wire.ReasonUnreachable},
		{"tcp", "noport", "dial tcp: address noport: missing port in address", wire.ReasonBadAddress},
		{"tcp", "", "dial tcp: missing address", wire.ReasonBadAddress},
		{"tcp", "a:b:c", "dial tcp: address a:b:c: too many colons in address", wire.ReasonBadAddress},
		{"tcp", "h:70000", "dial tcp: address 70000: invalid port", wire.ReasonBadAddress},
		{"tcp4", "v6only:80", "dial tcp4: address v6only: no suitable address found", wire.ReasonBadAddress},
		{"tcp6", "10.0.0.1:80", "dial tcp6: address 10.0.0.1: no suitable address found", wire.ReasonBadAddress},
	}
	for _, tc := range cases {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			c, err := f.dialer().Dial(ctx, tc.network, tc.address)
			if c != nil || err == nil {
				t.Fatalf("%s %q: connected", tc.network, tc.address)
			}
			if err.Error() != tc.text {
				t.Errorf("%s %q: %q, want %q", tc.network, tc.address, err, tc.text)
			}
			if got := ReasonOf(err); got != tc.reason {
				t.Errorf("%s %q: reason %v, want %v", tc.network, tc.address, got, tc.reason)
			}
		})
	}
}

// TestAllAddressesAreTried: one living address among many dead ones is found
// within the limit, wherever it is in the list.
func TestAllAddressesAreTried(t *testing.T) {
	for _, n := range []int{2, 5, 40, 200} {
		for _, alive := range []int{0, 1, n - 1} {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeHosts{names: map[string][]netip.Addr{}, behaviour: map[string]error{}}
				for i := range n {
					a := netip.AddrFrom4([4]byte{10, 0, byte(i / 250), byte(i % 250)})
					f.names["many"] = append(f.names["many"], a)
					if i != alive {
						f.behaviour[netip.AddrPortFrom(a, 80).String()] = errSilent
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				began := time.Now()
				c, err := f.dialer().Dial(ctx, "tcp", "many:80")
				if err != nil {
					t.Fatalf("address %d of %d not found: %v", alive, n, err)
				}
				if took := time.Since(began); took > time.Duration(alive)*stagger {
					t.Errorf("address %d of %d took %v", alive, n, took)
				}
				_ = c.Close()
				if f.open != 0 {
					t.Errorf("%d connections left", f.open)
				}
			})
		}
	}
}

// TestRefusedAddressesCostNothing: the next one is tried at once.
func TestRefusedAddressesCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := os.NewSyscallError("connect", syscall.ECONNREFUSED)
		f := &fakeHosts{
			names:     map[string][]netip.Addr{"h": addrs("10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2", "10.0.0.3")},
			behaviour: map[string]error{"10.0.0.1:80": refused, "10.0.0.2:80": refused, "[fd00::1]:80": refused, "[fd00::2]:80": refused},
		}
		began := time.Now()
		if _, err := f.dialer().Dial(t.Context(), "tcp", "h:80"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("took %v", took)
		}
		want := []string{"10.0.0.1:80", "[fd00::1]:80", "10.0.0.2:80", "[fd00::2]:80", "10.0.0.3:80"}
		if !slices.Equal(f.tried, want) {
			t.Errorf("tried %v, want the families in turns: %v", f.tried, want)
		}
	})
}

// TestCanceledRace leaves nothing behind.
func TestCanceledRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeHosts{
			names:     map[string][]netip.Addr{"h": addrs("10.0.0.1", "10.0.0.2", "10.0.0.3")},
			behaviour: map[string]error{"10.0.0.1:80": errSilent, "10.0.0.2:80": errSilent, "10.0.0.3:80": errSilent},
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, cancel)
		_, err := f.dialer().Dial(ctx, "tcp", "h:80")
		if ReasonOf(err) != wire.ReasonCanceled {
			t.Errorf("error %v", err)
		}
		if len(f.tried) != 2 {
			t.Errorf("tried %v after 300 ms", f.tried)
		}
	})
}

// TestPolicy is asked for what is really reached, after names are resolved.
func TestPolicy(t *testing.T) {
	f := &fakeHosts{
		names: map[string][]netip.Addr{
			"sneaky": addrs("127.0.0.1"), "mapped": addrs("::ffff:127.0.0.1"), "mixed": addrs("127.0.0.1", "10.0.0.1"),
		},
		behaviour: map[string]error{"10.0.0.9:80": os.NewSyscallError("connect", syscall.ECONNREFUSED)},
	}
	errLoopback := errors.New("loopback is not allowed")
	d := NewNetDialer(NetDialerConfig{Resolver: f, Connect: f.connect, Policy: func(network string, a netip.AddrPort) error {
		if network != "tcp" || a.Port() != 80 {
			return fmt.Errorf("policy asked for %s %v", network, a)
		}
		if a.Addr().IsLoopback() {
			return errLoopback
		}
		return nil
	}})
	for _, address := range []string{"sneaky:80", "mapped:80", "127.0.0.1:80", "[::1]:80", ":80", "0.0.0.0:80", "[::]:80", "[::ffff:127.0.0.2]:80"} {
		_, err := d.Dial(t.Context(), "tcp", address)
		if ReasonOf(err) != wire.ReasonPolicy || !errors.Is(err, errLoopback) {
			t.Errorf("%s: %v", address, err)
		}
	}
	if len(f.tried) != 0 {
		t.Errorf("tried %v", f.tried)
	}
	if _, err := d.Dial(t.Context(), "tcp", "mixed:80"); err != nil {
		t.Errorf("the allowed address of two: %v", err)
	}
}

// TestRealErrors: errors of the real network are classified by what they are.
func TestRealErrors(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	d := NewNetDialer(NetDialerConfig{})
	c, err := d.Dial(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Close(), l.Close()
	if _, err := d.Dial(t.Context(), "tcp", address); ReasonOf(err) != wire.ReasonRefused {
		t.Errorf("closed port: %v", err)
	}
	past, cancel := context.WithTimeout(t.Context(), -time.Second)
	defer cancel()
	if _, err := d.Dial(past, "tcp", address); ReasonOf(err) != wire.ReasonDialTimeout {
		t.Errorf("no time: %v, reason %v", err, ReasonOf(err))
	}
	if ReasonOf(io.EOF) != wire.ReasonOther || ReasonOf(nil) != wire.ReasonNone {
		t.Error("other errors")
	}
}
