package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/culvert-proxy/culvert/rig/process"
)

// TestCheck asks a real server about its agents.
func TestCheck(t *testing.T) {
	g := process.NewGround(t)
	s := g.StartServer(process.ServerOptions{Args: []string{"--proxy-strategies=destHost,destCIDR"}})
	g.StartAgent(process.AgentOptions{ID: "agent-north", Servers: []*process.Server{s}, Args: []string{"--agent-identifiers=cidr=10.1.0.0/16"}})
	process.Eventually(t, process.HangLimit, "an agent is a backend", func() bool {
		return s.Metric(`culvert_server_backend_links{proxy_strategy="destCIDR"}`) == 1
	})
	for _, c := range []struct {
		server, destination string
		code                int
		says                []string
	}{
		{s.Admin, "10.1.2.3:443", 0, []string{"served by destCIDR", "prefix 10.1.0.0/16", "agent agent-north, load 0: serves"}},
		{strings.TrimPrefix(s.Admin, "http://"), "10.1.2.3", 0, []string{"served by destCIDR"}},
		{s.Admin + "/", "10.2.0.1:443", 1, []string{"nobody would serve it", "agent agent-north: destHost: presents no host, ipv4 or ipv6; destCIDR: none of its prefixes (1) covers it"}},
		{s.Admin, "some-name:443", 1, []string{"prefixes cover addresses, and this is a name"}},
	} {
		p := process.Start(t, "culvert check", process.Program(t, "culvert"), "check", "--server="+c.server, c.destination)
		if code := p.Exit(process.HangLimit); code != c.code {
			t.Errorf("%s: exit status %d, want %d", c.destination, code, c.code)
		}
		for _, want := range c.says {
			if !strings.Contains(p.Log(), want) {
				t.Errorf("%s: %q is missing in\n%s", c.destination, want, p.Log())
			}
		}
	}
}

// TestCheckThatCannotAsk ends with a status of its own, and one line.
func TestCheckThatCannotAsk(t *testing.T) {
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"check", "--server=" + other.URL, "a:1"}, "404 Not Found: is this the admin port of a proxy-server?"},
		{[]string{"check", "--server=127.0.0.1:1", "a:1"}, "connection refused"},
		{[]string{"check", "--server=ftp://a", "a:1"}, "must be a URL such as http://127.0.0.1:8095"},
		{[]string{"check", "--server=http://a:b:c", "a:1"}, "--server: "},
		{[]string{"check", "--fast", "a:1"}, "--fast"},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), c.args, streams{strings.NewReader(""), &out, &errs})
		if code != 2 || !strings.Contains(errs.String(), c.want) || strings.Count(errs.String(), "\n") != 1 || out.Len() > 0 {
			t.Errorf("%q: status %d, standard error %q; want 2 and %q", c.args, code, errs.String(), c.want)
		}
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"check"}, streams{strings.NewReader(""), &out, &errs}); code != 2 || !strings.Contains(errs.String(), "Usage") {
		t.Errorf("without a destination: status %d, %q", code, errs.String())
	}
}
