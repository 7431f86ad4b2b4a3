package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-proxy/culvert/rig/process"
)

// brief runs an agent that is told to leave before it has begun.
func brief(t *testing.T, args ...string) (code int, log string) {
	t.Helper()
	tls, _ := pki(t)
	ports := process.FreePorts(t, "127.0.0.1", 2)
	args = append(append(tls, "--health-server-host=127.0.0.1", fmt.Sprintf("--health-server-port=%d", ports[0]),
		fmt.Sprintf("--admin-server-port=%d", ports[1]), "--lame-duck=0s", "--v=0", "--logging-format=json"), args...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	code = run(ctx, args, noEnvironment, &stdout, &stderr)
	return code, stderr.String()
}

// TestPairsAreLogged: each on its own line, decoded, in the order of the flag and
// in whichever form it was given.
func TestPairsAreLogged(t *testing.T) {
	for _, flag := range []string{
		"host=a&host=b.example&cidr=10.1.0.0/16&ipv6=fd00::1&failure-zone=eu-1b&default-route=true",
		"host=a&host=b.example&cidr=10.1.0.0%2F16&ipv6=fd00%3A%3A1&failure-zone=eu-1b&default-route=true",
		"host%3Da%26host%3Db.example%26cidr%3D10.1.0.0%2F16%26ipv6%3Dfd00%3A%3A1%26failure-zone%3Deu-1b%26default-route%3Dtrue",
	} {
		code, log := brief(t, "--agent-identifiers="+flag)
		if code != 0 {
			t.Fatalf("status %d:\n%s", code, log)
		}
		var pairs []string
		for line := range strings.Lines(log) {
			var entry struct{ Msg, Key, Value string }
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "agent identifier" {
				pairs = append(pairs, entry.Key+"="+entry.Value)
			}
		}
		const want = "host=a host=b.example cidr=10.1.0.0/16 ipv6=fd00::1 failure-zone=eu-1b default-route=true"
		if got := strings.Join(pairs, " "); got != want {
			t.Errorf("%s is logged as %q; the whole log:\n%s", flag, got, log)
		}
	}
}

// TestNodeWithoutAccess: an agent whose account may not read its Node says so in
// one line and exits.
func TestNodeWithoutAccess(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"nodes \"n1\" is forbidden"}`)
	}))
	defer api.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{}}],"current-context":"c"}`, api.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	tls, _ := pki(t)
	ports := process.FreePorts(t, "127.0.0.1", 2)
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), append(tls, "--health-server-host=127.0.0.1", fmt.Sprintf("--health-server-port=%d", ports[0]),
		fmt.Sprintf("--admin-server-port=%d", ports[1]), "--kubeconfig="+kubeconfig, "--identifiers-from-node=n1"), noEnvironment, &stdout, &stderr)
	const want = `proxy-agent: --identifiers-from-node=n1: the agent's account may not read Node n1; its role needs the verb get on the resource nodes: nodes "n1" is forbidden`
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	if last := lines[len(lines)-1]; code != 1 || last != want {
		t.Errorf("status %d, last line %q, want %q", code, last, want)
	}
}
