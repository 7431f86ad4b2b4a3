package house

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// room is a row of the import table: what of ours a package may import, what of
// others it must not, and why.
type room struct {
	ours   []string // packages of ours, relative to the module path; a trailing /... covers what lies below
	banned []string // prefixes of import paths of others
	why    string
}

// table is DESIGN section 2 as a test. A package that is not listed may not
// exist: a new room needs a row and a reason.
func table() map[string]room {
	const (
		grpc = "google.golang.org/grpc"
		kube = "k8s.io/"
		prom = "github.com/prometheus/"
	)
	return map[string]room{
		"tunnel/wire": {nil, []string{kube, prom, "net"},
			"bytes in, bytes out: no I/O, so that the codec can be fuzzed and reused anywhere"},
		"tunnel/flow": {nil, []string{grpc, kube, prom},
			"arithmetic and queues: they do not know what they count"},
		"tunnel/link": {[]string{"tunnel/wire", "tunnel/flow"}, []string{kube, prom},
			"linked into other people's control planes: stays light; flow because both ends of a link need the same writer"},
		"tunnel/client": {[]string{"tunnel/wire", "tunnel/flow", "tunnel/link"}, []string{kube, prom},
			"linked into other people's control planes: no logging, no metrics library"},
		"tunnel/tunneltest": {[]string{"tunnel/wire", "tunnel/link"}, []string{kube, prom},
			"a peer made of packets knows no server and no agent"},
		"internal/server/relay": {[]string{"tunnel/wire", "tunnel/flow"}, []string{grpc, kube, prom, "crypto/tls", "net/http"},
			"the middle must be testable without any transport"},
		"internal/server/backend": {[]string{"tunnel/wire"}, []string{grpc, kube, prom, "net/http"},
			"choosing is pure: no streams, clocks or context values"},
		"internal/server/agentlink": {[]string{"internal/server/relay", "tunnel/link", "tunnel/wire"}, []string{prom},
			"an adapter: one stream to relay's ports"},
		"internal/server/frontgrpc": {[]string{"internal/server/relay", "tunnel/link", "tunnel/wire"}, []string{prom},
			"an adapter: one stream to relay's ports"},
		"internal/server/frontconnect": {[]string{"internal/server/relay", "tunnel/wire"}, []string{prom, kube},
			"an adapter: one socket to relay's ports, no gRPC stream in sight"},
		"internal/server/metrics": {[]string{"internal/server/...", "internal/streammetrics", "tunnel/wire", "tunnel/link", "tunnel/flow"}, nil,
			"may import what it observes; nobody below the assembly imports it"},
		"internal/server": {[]string{"internal/server/...", "internal/transport", "internal/observe", "internal/lifecycle", "internal/servercounter", "internal/lease", "tunnel/wire", "tunnel/flow", "tunnel/link"}, nil,
			"the assembly knows its rooms"},
		"internal/agent/endpoint": {[]string{"tunnel/wire", "tunnel/flow"}, []string{grpc + "/", kube, prom, "crypto/tls", "net/http"},
			"one connection to an endpoint: no stream, no certificates"},
		"internal/agent/serverlink": {[]string{"internal/agent/endpoint", "tunnel/link", "tunnel/wire"}, []string{prom},
			"one link; how many there are is fleet's business"},
		"internal/agent/fleet": {[]string{"internal/agent/serverlink", "internal/servercounter", "tunnel/wire"}, []string{grpc, prom},
			"decides when to connect, never how"},
		"internal/agent/nodeinfo": {[]string{"tunnel/wire"}, []string{grpc, prom},
			"one Node object to identifiers; who presents them is not its business"},
		"internal/agent/metrics": {[]string{"internal/agent/...", "internal/streammetrics", "tunnel/wire", "tunnel/link", "tunnel/flow"}, nil,
			"may import what it observes"},
		"internal/agent": {[]string{"internal/agent/...", "internal/transport", "internal/observe", "internal/lifecycle", "internal/servercounter", "internal/lease", "tunnel/wire", "tunnel/flow", "tunnel/link"}, nil,
			"the assembly knows its rooms"},
		"internal/streammetrics": {[]string{"tunnel/wire"}, []string{kube}, "the metrics of streams that both binaries share"},
		"internal/servercounter": {nil, []string{grpc, "k8s.io/client-go", prom},
			"numbers only; the lease counter lives where client-go does"},
		"internal/lease":     {nil, []string{grpc, prom}, "client-go lives here"},
		"internal/observe":   {nil, []string{grpc}, "shows what it is given"},
		"internal/transport": {nil, []string{prom, "k8s.io/client-go"}, "listeners and TLS, for both binaries alike"},
		"internal/lifecycle": {nil, []string{grpc, prom}, "start and stop, for both binaries alike"},
		"internal/golden":    {nil, []string{grpc, kube}, "texts and numbers that tests of both binaries hold; no program imports it"},
		"internal/house":     {nil, nil, "rules only"},
		"internal/options":   {[]string{"tunnel/wire", "internal/transport"}, []string{grpc, prom}, "flags and logging that both binaries share"},
		"cmd/proxy-server":   {[]string{"internal/server", "internal/server/backend", "internal/lease", "internal/lifecycle", "internal/options", "internal/transport"}, nil, "one assembly and its flags"},
		"cmd/proxy-agent":    {[]string{"internal/agent", "internal/agent/nodeinfo", "internal/lease", "internal/lifecycle", "internal/options", "internal/transport", "tunnel/wire"}, nil, "one assembly and its flags"},
		"cmd/culvert":        {[]string{"internal/lifecycle", "internal/options", "internal/transport", "internal/certs", "tunnel/client", "tunnel/wire"}, nil, "for people; a client like any other"},
		"internal/certs":     {nil, []string{grpc, prom, kube}, "a certificate authority for the demo and for tests"},
	}
}

// anything may be imported by these trees: they exist to put parts together.
func freeTrees() []string { return []string{"rig", "interop", "bench", "e2e", "compat"} }

func TestImportTable(t *testing.T) {
	rooms := table()
	for _, s := range sources(t) {
		pkg := s.pkg()
		if slices.ContainsFunc(freeTrees(), func(tree string) bool { return under(pkg, tree) }) {
			continue
		}
		r, known := rooms[pkg]
		if !known {
			t.Errorf("%s: package %s has no row in the import table", s.path, pkg)
			continue
		}
		if s.test {
			continue // tests may build what they need around the room
		}
		for _, spec := range s.file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			checkImport(t, s, pkg, r, path)
		}
	}
}

func checkImport(t *testing.T, s source, pkg string, r room, path string) {
	t.Helper()
	if rel, ours := strings.CutPrefix(path, modulePath+"/"); ours {
		if !slices.ContainsFunc(r.ours, func(allowed string) bool { return matches(rel, allowed) }) {
			t.Errorf("%s: %s may not import %s: %s", s.path, pkg, rel, r.why)
		}
		return
	}
	for _, ban := range r.banned {
		exact := path == ban
		below := strings.HasPrefix(path, strings.TrimSuffix(ban, "/")+"/")
		if ban == "net" { // net/netip is arithmetic; net itself is I/O
			below = path == "net/http"
		}
		if (exact || below) && !strings.HasPrefix(path, "google.golang.org/grpc/mem") {
			t.Errorf("%s: %s may not import %s: %s", s.path, pkg, path, r.why)
		}
	}
}

func matches(rel, allowed string) bool {
	if tree, ok := strings.CutSuffix(allowed, "/..."); ok {
		return under(rel, tree)
	}
	return rel == allowed
}

// TestTableHasNoGhosts keeps the table from outliving the packages it speaks of.
func TestTableHasNoGhosts(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range sources(t) {
		seen[s.pkg()] = true
	}
	for pkg := range table() {
		if !seen[pkg] {
			t.Errorf("the import table has a row for %s, which does not exist", pkg)
		}
	}
}
