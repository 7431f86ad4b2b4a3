package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-proxy/culvert/internal/certs"
	"github.com/culvert-proxy/culvert/internal/golden"
	"github.com/culvert-proxy/culvert/internal/server"
	"github.com/culvert-proxy/culvert/internal/server/backend"
)

// pki makes the files that a complete command line names.
func pki(t *testing.T) (server, cluster []string, dir string) {
	t.Helper()
	dir = t.TempDir()
	ca, err := certs.New(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Server("server", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	server = []string{"--server-cert=" + pair.Cert, "--server-key=" + pair.Key, "--server-ca-cert=" + ca.CA()}
	cluster = []string{"--cluster-cert=" + pair.Cert, "--cluster-key=" + pair.Key, "--cluster-ca-cert=" + ca.CA()}
	return server, cluster, dir
}

// TestValidation holds every rule of COMPAT 3.1, as changed by section 11: the
// flags in, the one line out. Every case must fail before anything listens.
func TestValidation(t *testing.T) {
	tcp, cluster, dir := pki(t)
	uds := []string{"--uds-name=" + filepath.Join(dir, "s.sock"), "--server-port=0"}
	key := strings.TrimPrefix(tcp[1], "--server-key=")
	for _, c := range []struct {
		name string
		base []string
		args []string
		want string // in the one line on standard error
	}{
		{"unknown flag", nil, []string{"--server_port=1"}, "server_port"},
		{"duration without unit", nil, []string{"--keepalive-time=5"}, "keepalive-time"},
		{"server key missing on disk", uds, []string{"--server-key=/nonexistent"}, "--server-key=/nonexistent: no such file"},
		{"server key without cert", nil, []string{"--server-key=" + key}, "needs --server-cert"},
		{"server cert missing on disk", nil, []string{"--server-cert=/nonexistent", "--server-key=" + key}, "--server-cert=/nonexistent: no such file"},
		{"server cert without key", nil, []string{"--server-cert=" + key}, "needs --server-key"},
		{"server CA missing", nil, []string{"--server-ca-cert=/nonexistent"}, "--server-ca-cert=/nonexistent"},
		{"cluster key missing on disk", tcp, []string{"--cluster-key=/nonexistent"}, "--cluster-key=/nonexistent"},
		{"cluster key without cert", tcp, []string{"--cluster-key=" + key}, "needs --cluster-cert"},
		{"cluster cert missing on disk", tcp, []string{"--cluster-cert=/nonexistent", "--cluster-key=" + key}, "--cluster-cert=/nonexistent"},
		{"cluster cert without key", tcp, []string{"--cluster-cert=" + key}, "needs --cluster-key"},
		{"cluster CA missing", tcp, []string{"--cluster-ca-cert=/nonexistent"}, "--cluster-ca-cert=/nonexistent"},
		{"mode in other case", uds, []string{"--mode=GRPC"}, "must be one of: grpc, http-connect"},
		{"socket with the default port", nil, []string{"--uds-name=" + filepath.Join(dir, "s.sock")}, "--server-port=8090: must be 0"},
		{"socket with a server cert", uds, tcp[:2], "no TLS"},
		{"socket with a server CA", uds, tcp[2:], "--server-ca-cert"},
		{"TCP without a CA", nil, tcp[:2], "--server-ca-cert: needed"},
		{"TCP without a cert", nil, tcp[2:], "--server-cert: needed"},
		{"server port 0 without socket", tcp, []string{"--server-port=0"}, "--server-port=0"},
		{"server port too large", tcp, []string{"--server-port=65536"}, "--server-port=65536"},
		{"agent port 0", uds, []string{"--agent-port=0"}, "--agent-port=0"},
		{"admin port negative", uds, []string{"--admin-port=-1"}, "--admin-port=-1"},
		{"health port too large", uds, []string{"--health-port=70000"}, "--health-port=70000"},
		{"contention without profiling", uds, []string{"--enable-contention-profiling"}, "needs --enable-profiling"},
		{"token authentication, one of three", uds, []string{"--agent-namespace=a"}, "needs --agent-service-account"},
		{"token authentication, two of three", uds, []string{"--agent-namespace=a", "--agent-service-account=b"}, "needs --authentication-audience"},
		{"token authentication, whole", uds, []string{"--agent-namespace=a", "--agent-service-account=b", "--authentication-audience=c"}, "not built yet"},
		{"kubeconfig missing", uds, []string{"--kubeconfig=/nonexistent"}, "--kubeconfig=/nonexistent"},
		{"strategies empty", uds, []string{"--proxy-strategies="}, "destHost"},
		{"strategies only commas", uds, []string{"--proxy-strategies=,,"}, "destHost"},
		{"strategy unknown", uds, []string{"--proxy-strategies=nearest"}, "nearest"},
		{"strategy in other case", uds, []string{"--proxy-strategies=desthost"}, "destHost"},
		{"strategy with a blank", uds, []string{"--proxy-strategies=destHost, default"}, "default"},
		{"queue of zero", uds, []string{"--xfr-channel-size=0"}, "--xfr-channel-size=0"},
		{"TLS version unknown", uds, []string{"--tls-min-version=1.2"}, "VersionTLS12"},
		{"cipher unknown", uds, []string{"--cipher-suites=TLS_RSA_WITH_RC4_128_SHA"}, "TLS_RSA_WITH_RC4_128_SHA"},
		{"lease label malformed", uds, []string{"--lease-label=a=b=c"}, "--lease-label=a=b=c"},
		{"lease label empty", uds, []string{"--lease-label="}, "--lease-label"},
		{"graceful timeout negative", uds, []string{"--graceful-shutdown-timeout=-1s"}, "--graceful-shutdown-timeout=-1s"},
		{"backend dial timeout negative", uds, []string{"--backend-dial-timeout=-1s"}, "--backend-dial-timeout=-1s"},
		{"dial attempts zero", uds, []string{"--dial-attempts=0"}, "--dial-attempts=0"},
		{"flow budget without sense", uds, []string{"--flow-budget=lots"}, "lots"},
		{"logging format unknown", uds, []string{"--logging-format=xml"}, "text, json"},
		{"no cluster cert", uds, nil, "--cluster-cert: needed"},
		{"nobody knows who agents are", uds, cluster[:2], "--insecure-allow-unauthenticated-agents"},
	} {
		golden.Refused(t, golden.Refusal{Name: c.name, Args: append(c.base, c.args...), Want: c.want}, func(args []string, stdout, stderr *bytes.Buffer) int {
			return run(context.Background(), args, noEnvironment, stdout, stderr)
		})
	}
}

// TestManifestFlagsStart starts servers with the flag sets of common manifests.
func TestManifestFlagsStart(t *testing.T) {
	tcp, cluster, dir := pki(t)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"socket, gRPC": append([]string{
			"--logtostderr=true", "--uds-name=" + filepath.Join(dir, "k.sock"), "--delete-existing-uds-file", "--mode=grpc",
			"--server-port=0", "--agent-port=8091", "--admin-port=8095", "--health-port=8092", "--keepalive-time=1h",
			"--kubeconfig=" + kubeconfig, "--server-count=3", "--proxy-strategies=destHost,default", "--v=4",
		}, cluster...),
		"TCP, HTTP CONNECT": append(append([]string{
			"--mode=http-connect", "--server-port=8090", "--agent-port=8091", "--admin-port=8095", "--health-port=8092",
			"--server-id=a", "--enable-profiling", "--enable-contention-profiling", "--cipher-suites=TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384",
			"--tls-min-version=VersionTLS12", "--warn-on-channel-limit=true", "-v=2", "ignored",
		}, tcp...), cluster...),
		"agents without proof": append([]string{
			"--uds-name=" + filepath.Join(dir, "k.sock"), "--server-port=0", "--insecure-allow-unauthenticated-agents",
		}, cluster[:2]...),
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			f := newFlags(&stderr, noEnvironment)
			if err := f.set.Parse(args); err != nil {
				t.Fatal(err)
			}
			cfg, _, err := f.validate()
			if err != nil {
				t.Fatal(err)
			}
			// What listens does so on free ports of loopback here.
			for _, address := range []*string{&cfg.ServerAddress, &cfg.AgentAddress, &cfg.HealthAddress, &cfg.AdminAddress} {
				*address = "127.0.0.1:0"
			}
			s, err := server.New(cfg, server.Deps{})
			if err != nil {
				t.Fatal(err)
			}
			s.Close()
		})
	}
}

// TestStrategies: a repeat starts, with a warning; nothing means default alone.
func TestStrategies(t *testing.T) {
	_, cluster, dir := pki(t)
	base := slices.Concat(cluster, []string{"--uds-name=" + filepath.Join(dir, "s.sock"), "--server-port=0"})
	for _, c := range []struct {
		args, warnings []string
		want           []backend.Strategy
	}{
		{nil, nil, []backend.Strategy{backend.Default}},
		{[]string{"--proxy-strategies=destHost,default,destHost"},
			[]string{"--proxy-strategies=destHost,default,destHost: destHost is named more than once, which has no effect"},
			[]backend.Strategy{backend.DestHost, backend.Default}},
	} {
		f := newFlags(&bytes.Buffer{}, noEnvironment)
		if err := f.set.Parse(slices.Concat(base, c.args)); err != nil {
			t.Fatal(err)
		}
		cfg, warnings, err := f.validate()
		if err != nil || !slices.Equal(warnings, c.warnings) || !slices.Equal(cfg.Strategies, c.want) {
			t.Errorf("%q: strategies %v, warnings %q, error %v", c.args, cfg.Strategies, warnings, err)
		}
	}
}

func TestServerIDFromEnvironment(t *testing.T) {
	env := func(key string) string {
		if key == "PROXY_SERVER_ID" {
			return "from-environment"
		}
		return ""
	}
	f := newFlags(&bytes.Buffer{}, env)
	if f.serverID != "from-environment" {
		t.Errorf("server ID is %q", f.serverID)
	}
	if err := f.set.Parse([]string{"--server-id=from-flag"}); err != nil || f.serverID != "from-flag" {
		t.Errorf("server ID is %q (%v), want the flag to win", f.serverID, err)
	}
	a, b := newFlags(&bytes.Buffer{}, noEnvironment), newFlags(&bytes.Buffer{}, noEnvironment)
	if a.serverID == "" || a.serverID == b.serverID {
		t.Errorf("IDs of two processes are %q and %q", a.serverID, b.serverID)
	}
}
