package serverlink

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
)

// proxyOn serves an HTTP proxy that knows CONNECT on a network. answer, if not
// empty, is what it says instead of doing its work.
func proxyOn(t *testing.T, n *tunneltest.Network, answer string) (seen func() []*http.Request) {
	t.Helper()
	l := n.Listen("proxy:3128")
	var mu sync.Mutex
	var requests []*http.Request
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				br := bufio.NewReader(c)
				req, err := http.ReadRequest(br)
				if err != nil {
					return
				}
				mu.Lock()
				requests = append(requests, req)
				mu.Unlock()
				if answer != "" {
					_, _ = io.WriteString(c, answer)
					_, _ = io.Copy(io.Discard, br)
					return
				}
				up, err := n.Dialer("proxy")(context.Background(), req.RequestURI)
				if err != nil {
					return
				}
				defer up.Close()
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
				go func() { _, _ = io.Copy(c, up); _ = c.Close() }()
				_, _ = io.Copy(up, br)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		n.Cut("proxy", "")
		n.Cut("proxy:3128", "")
		wg.Wait()
	})
	return func() []*http.Request {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(requests)
	}
}

func viaProxy(c *Config) {
	c.ProxyFor = func(u *url.URL) (*url.URL, error) {
		if u.Scheme != "https" {
			return nil, errors.New("asked for " + u.String())
		}
		return url.Parse("http://user:pass%21@proxy:3128")
	}
}

// TestProxy: the way to the server leads through an HTTP proxy.
func TestProxy(t *testing.T) {
	inBubble(t, viaProxy, func(t *testing.T, b *bench) {
		seen := proxyOn(t, b.net, "")
		if !b.conn.Proxied("server:1") {
			t.Error("not proxied")
		}
		l, _ := b.connect(newServer())
		l.Drop()
		got := seen()
		if len(got) != 1 || got[0].Method != http.MethodConnect || got[0].RequestURI != "server:1" || got[0].Host != "server:1" {
			t.Fatalf("proxy was asked %+v", got)
		}
		if auth := got[0].Header.Get("Proxy-Authorization"); auth != "Basic dXNlcjpwYXNzIQ==" {
			t.Errorf("authorization %q", auth)
		}
	})
}

// TestProxyFailures name the proxy, and never its password.
func TestProxyFailures(t *testing.T) {
	for _, tc := range []struct{ answer, want string }{
		{"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n", "407"},
		{"what?\r\n\r\n", "malformed"},
	} {
		inBubble(t, viaProxy, func(t *testing.T, b *bench) {
			proxyOn(t, b.net, tc.answer)
			_, err := b.conn.Connect(t.Context(), b.target())
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "proxy:3128") || strings.Contains(err.Error(), "pass") {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
	inBubble(t, viaProxy, func(t *testing.T, b *bench) { // says nothing at all
		l := b.net.Listen("proxy:3128")
		began := time.Now()
		_, err := b.conn.Connect(t.Context(), b.target())
		var stage *StageError
		if !errors.As(err, &stage) || time.Since(began) != 10*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		_ = l.Close()
	})
	inBubble(t, func(c *Config) {
		c.ProxyFor = func(*url.URL) (*url.URL, error) { return url.Parse("socks5://proxy:1080") }
	}, func(t *testing.T, b *bench) {
		if _, err := b.conn.Connect(t.Context(), b.target()); err == nil || !strings.Contains(err.Error(), "socks5") {
			t.Errorf("error %v", err)
		}
	})
}

// TestEnvironmentProxy honours both variables.
func TestEnvironmentProxy(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://proxy:3128")
	t.Setenv("NO_PROXY", "inside.example,10.0.0.0/8")
	c := New(Config{ProxyFor: EnvironmentProxy()}, nil, nil)
	for address, want := range map[string]bool{
		"server.example:8091": true, "inside.example:8091": false, "a.inside.example:8091": false, "10.1.2.3:8091": false, "192.0.2.1:8091": true,
	} {
		if got := c.Proxied(address); got != want {
			t.Errorf("%s: proxied %v, want %v", address, got, want)
		}
	}
}

// TestTargets: every address behind every host, in a stable order.
func TestTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := map[string][]string{"a": {"10.0.0.2", "10.0.0.1"}, "b": {"fd00::1", "10.0.0.1"}}
		var out error
		d := NewDirectory(DirectoryConfig{
			Hosts: []string{"a", "b", "192.0.2.7", "2001:db8::7", "gone", "far", "a"},
			Port:  8091,
			Lookup: func(_ context.Context, host string) ([]string, error) {
				if host == "far" {
					t.Error("a proxied name was resolved")
				}
				if out != nil {
					return nil, out
				}
				if found, ok := names[host]; ok {
					return found, nil
				}
				return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
			},
			Proxied: func(address string) bool { return address == "far:8091" },
		})
		want := []Target{
			{"a", "10.0.0.1:8091"}, {"a", "10.0.0.2:8091"},
			{"b", "10.0.0.1:8091"}, {"b", "[fd00::1]:8091"},
			{"192.0.2.7", "192.0.2.7:8091"}, {"2001:db8::7", "[2001:db8::7]:8091"},
			{"gone", "gone:8091"}, {"far", "far:8091"},
		}
		if got := d.Targets(t.Context()); !slices.Equal(got, want) {
			t.Errorf("targets %v, want %v", got, want)
		}
		out = &net.DNSError{Err: "server misbehaving", IsTemporary: true}
		if got := d.Targets(t.Context()); !slices.Equal(got, want) {
			t.Errorf("targets %v while DNS is out, want the last ones", got)
		}
		out = nil
		names["a"] = []string{"10.0.0.9"}
		if got := d.Targets(t.Context()); got[0].Address != "10.0.0.9:8091" || got[1].Host != "b" {
			t.Errorf("targets %v after a change", got)
		}
		delete(names, "a")
		if got := d.Targets(t.Context()); got[0].Address != "a:8091" || got[1].Host != "b" {
			t.Errorf("targets %v with nobody behind a", got)
		}
	})
}

func TestAuthority(t *testing.T) {
	for target, want := range map[Target]string{
		{"server.example", "10.0.0.1:8091"}: "server.example",
		{"10.0.0.1", "10.0.0.1:8091"}:       "10.0.0.1",
		{"fd00::1", "[fd00::1]:8091"}:       "[fd00::1]:8091",
	} {
		if got := target.authority(); got != want {
			t.Errorf("%v: %q, want %q", target, got, want)
		}
	}
}
