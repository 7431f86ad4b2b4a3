package suite

import (
	"fmt"
	"os"
	"testing"
)

// scale is how much of each behaviour is run.
type scale struct {
	banners, exchanges, canceled int
	bulk                         int64 // bytes
}

// sizes are what the issue asks for, once, and a tenth of it elsewhere.
func sizes(full bool) scale {
	if full {
		return scale{banners: 3000, exchanges: 10_000, canceled: 3000, bulk: 64 << 20}
	}
	return scale{banners: 600, exchanges: 1000, canceled: 300, bulk: 8 << 20}
}

// combinations are which side of the link is an old one.
func combinations() []peers {
	return []peers{{}, {oldAgent: true}, {oldServer: true}}
}

// Public runs everything with the library as the client. reusable is nil in
// versions without a reusable tunnel.
func Public(t *testing.T, version string, reusable Reusable) {
	run(t, publics(version, reusable))
}

// Others runs the same with our client and with kube-apiserver's CONNECT.
func Others(t *testing.T) { run(t, others()) }

func run(t *testing.T, all []who) {
	for i, w := range all {
		for _, p := range combinations() {
			if w.variant && p != (peers{}) {
				continue
			}
			t.Run(fmt.Sprintf("%s,%s", w.name, p), func(t *testing.T) {
				t.Cleanup(func() { record(t, w, p) })
				s := newStage(t, w.mode, w.tcp, p)
				s.behave(w, sizes(i == 0 && p == peers{}))
				t.Run("stuck", func(t *testing.T) {
					// Limits that are reached, short, so that the test is.
					s := newStage(t, w.mode, w.tcp, p, "--stuck-tunnel-timeout=1s", "--close-timeout=3s")
					s.stuck(w, w.open(s))
				})
			})
		}
	}
}

// behave runs what must hold while nothing is stuck.
func (s *stage) behave(w who, n scale) {
	dial := w.open(s)
	for _, part := range []struct {
		name string
		run  func(s *stage)
	}{
		{"banners", func(s *stage) { s.banners(w, dial, n.banners) }},
		{"exchanges", func(s *stage) { s.exchanges(w, dial, n.exchanges) }},
		{"bulk", func(s *stage) { s.bulk(dial, n.bulk) }},
		{"refused", func(s *stage) { s.refused(dial) }},
		{"canceled", func(s *stage) { s.canceled(dial, n.canceled) }},
	} {
		outer := s.T
		outer.Run(part.name, func(t *testing.T) {
			inner := *s
			inner.T = t
			part.run(&inner)
		})
	}
}

// record adds a row to the matrix of who was seen to work with whom, which the
// test script shows at the end.
func record(t *testing.T, w who, p peers) {
	path := os.Getenv("CULVERT_INTEROP_MATRIX")
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	verdict := "ok"
	if t.Failed() {
		verdict = "FAILED"
	}
	age := map[bool]string{true: "plain protocol", false: "ours"}
	fmt.Fprintf(f, "%-28s | %-14s | %-14s | %s\n", w.name, age[p.oldServer], age[p.oldAgent], verdict)
}
