package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-proxy/culvert/internal/agent"
	"github.com/culvert-proxy/culvert/internal/certs"
	"github.com/culvert-proxy/culvert/internal/golden"
)

// pki makes the files that a complete command line names.
func pki(t *testing.T) (args []string, dir string) {
	t.Helper()
	dir = t.TempDir()
	ca, err := certs.New(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Client("agent")
	if err != nil {
		t.Fatal(err)
	}
	return []string{"--ca-cert=" + ca.CA(), "--agent-cert=" + pair.Cert, "--agent-key=" + pair.Key}, dir
}

// TestValidation holds every rule of COMPAT 3.2, as changed by section 11.
func TestValidation(t *testing.T) {
	tls, _ := pki(t)
	key := strings.TrimPrefix(tls[2], "--agent-key=")
	for _, c := range []struct {
		name string
		base []string
		args []string
		want string
	}{
		{"unknown flag", tls, []string{"--agent_id=1"}, "agent_id"},
		{"agent key missing on disk", nil, []string{"--agent-key=/nonexistent"}, "--agent-key=/nonexistent: no such file"},
		{"agent key without cert", nil, []string{"--agent-key=" + key}, "needs --agent-cert"},
		{"agent cert missing on disk", nil, []string{"--agent-cert=/nonexistent", "--agent-key=" + key}, "--agent-cert=/nonexistent"},
		{"agent cert without key", nil, []string{"--agent-cert=" + key}, "needs --agent-key"},
		{"CA missing on disk", nil, []string{"--ca-cert=/nonexistent"}, "--ca-cert=/nonexistent"},
		{"no CA", nil, nil, "--ca-cert: needed"},
		{"server host empty", tls, []string{"--proxy-server-host="}, "--proxy-server-host"},
		{"one of several hosts empty", tls, []string{"--proxy-server-host=a,,b"}, "--proxy-server-host"},
		{"server port 0", tls, []string{"--proxy-server-port=0"}, "--proxy-server-port=0"},
		{"health port negative", tls, []string{"--health-server-port=-1"}, "--health-server-port=-1"},
		{"admin port too large", tls, []string{"--admin-server-port=65536"}, "--admin-server-port=65536"},
		{"queue of zero", tls, []string{"--xfr-channel-size=0"}, "--xfr-channel-size=0"},
		{"contention without profiling", tls, []string{"--enable-contention-profiling"}, "needs --enable-profiling"},
		{"interval over its cap", tls, []string{"--sync-interval=11s"}, "--sync-interval-cap=10s"},
		{"interval negative", tls, []string{"--sync-interval=-1s"}, "--sync-interval=-1s"},
		{"token missing on disk", tls, []string{"--service-account-token-path=/nonexistent"}, "--service-account-token-path=/nonexistent"},
		{"identifiers with a semicolon", tls, []string{"--agent-identifiers=host=a;host=b"}, "--agent-identifiers"},
		{"identifiers with a bad escape", tls, []string{"--agent-identifiers=host=%zz"}, "--agent-identifiers"},
		{"identifiers with an unknown key", tls, []string{"--agent-identifiers=uid=a"}, "uid"},
		{"identifiers with a bad address", tls, []string{"--agent-identifiers=ipv4=notanip"}, "notanip"},
		{"identifiers with a bad prefix", tls, []string{"--agent-identifiers=cidr=10.0.0.0"}, "10.0.0.0"},
		{"identifiers with an empty value", tls, []string{"--agent-identifiers=host="}, "host"},
		{"identifiers joined by commas", tls, []string{"--agent-identifiers=host=a,cidr=10.0.0.0/8"}, "&"},
		{"node whose variable was not replaced", tls, []string{"--identifiers-from-node=$(NODE_NAME)"}, "--identifiers-from-node=$(NODE_NAME): the variable was not replaced"},
		{"node with an empty name", tls, []string{"--identifiers-from-node="}, "--identifiers-from-node: not the name of a Node"},
		{"node with a bad name", tls, []string{"--identifiers-from-node=Node_1"}, "--identifiers-from-node=Node_1: not the name of a Node"},
		{"node key unknown", tls, []string{"--identifiers-from-node=n", "--identifiers-from-node-keys=zone,labels"}, `unknown key "labels": valid are addresses,podCIDRs,hostname,zone`},
		{"node keys empty", tls, []string{"--identifiers-from-node=n", "--identifiers-from-node-keys="}, "--identifiers-from-node-keys: no key is named"},
		{"node keys without a node", tls, []string{"--identifiers-from-node-keys=zone"}, "needs --identifiers-from-node"},
		{"kubeconfig missing", tls, []string{"--kubeconfig=/nonexistent"}, "--kubeconfig=/nonexistent"},
		{"count source unknown", tls, []string{"--server-count-source=MAX"}, "default, max"},
		{"selector malformed", tls, []string{"--lease-label-selector=a in"}, "--lease-label-selector"},
		{"logging format unknown", tls, []string{"--logging-format=xml"}, "text, json"},
		{"drain timeout negative", tls, []string{"--drain-timeout=-1s"}, "--drain-timeout=-1s"},
	} {
		golden.Refused(t, golden.Refusal{Name: c.name, Args: append(c.base, c.args...), Want: c.want}, func(args []string, stdout, stderr *bytes.Buffer) int {
			return run(context.Background(), args, noEnvironment, stdout, stderr)
		})
	}
}

// TestManifestFlagsStart starts agents with the flag sets of common manifests.
func TestManifestFlagsStart(t *testing.T) {
	tls, dir := pki(t)
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("t\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"daemon set": append([]string{
			"--logtostderr=true", "--proxy-server-host=konnectivity.example", "--proxy-server-port=8091", "--sync-interval=5s",
			"--sync-interval-cap=30s", "--probe-interval=5s", "--service-account-token-path=" + token,
			"--agent-identifiers=ipv4=10.0.0.7&host=node-1", "--keepalive-time=30s", "--v=3",
		}, tls[0]),
		"client certificate": append([]string{
			"--agent-id=node-1", "--health-server-port=8093", "--admin-server-port=8094", "--warn-on-channel-limit", "--sync-forever",
			"--alpn-proto=one,two", "--xfr-channel-size=10", "--agent-identifiers=ipv4=1.2.3.4&ipv6=%3A%3A1&default-route=true",
		}, tls...),
		"old alias": append([]string{"--lease-label=k8s-app=other", "--server-count-source="}, tls...),
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			f := newFlags(&stderr, noEnvironment)
			if err := f.set.Parse(args); err != nil {
				t.Fatal(err)
			}
			cfg, err := f.validate()
			if err != nil {
				t.Fatal(err)
			}
			// What listens does so on free ports of loopback here.
			cfg.HealthAddress, cfg.AdminAddress = "127.0.0.1:0", "127.0.0.1:0"
			a, err := agent.New(cfg, agent.Deps{})
			if err != nil {
				t.Fatal(err)
			}
			a.Close()
		})
	}
}

func TestAgentIDFromEnvironment(t *testing.T) {
	env := func(key string) string {
		if key == "PROXY_AGENT_ID" {
			return "from-environment"
		}
		return ""
	}
	f := newFlags(&bytes.Buffer{}, env)
	if f.agentID != "from-environment" {
		t.Errorf("agent ID is %q", f.agentID)
	}
	if err := f.set.Parse([]string{"--agent-id=from-flag"}); err != nil || f.agentID != "from-flag" {
		t.Errorf("agent ID is %q (%v), want the flag to win", f.agentID, err)
	}
}
