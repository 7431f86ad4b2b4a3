package backend

import (
	"fmt"
	"strings"
	"testing"
)

// explained is a router in which every kind of answer can be seen.
func explained(t *testing.T) *Router[*fake] {
	r := New[*fake](Config{Strategies: []Strategy{DestHost, DestCIDR, Default}, FailureZone: "east"})
	join := func(id, identifiers string, load int64, draining, suspect bool) {
		b := &fake{id: id}
		b.load.Store(load)
		b.draining.Store(draining)
		b.suspect.Store(suspect)
		r.Join(b, member(t, id, identifiers))
	}
	join("a", "cidr=10.1.0.0/16&failure-zone=east", 3, false, false)
	join("b", "cidr=10.1.0.0/16&failure-zone=west", 1, false, false)
	join("c", "cidr=10.1.0.0/16&failure-zone=east", 0, true, false)
	join("d", "cidr=10.1.0.0/16", 0, true, true)
	join("e", "cidr=10.0.0.0/8&exclude-default=true", 0, false, false)
	join("f", "cidr=192.168.0.0/16&host=x&exclude-default=true", 0, false, false)
	return r
}

func TestExplainText(t *testing.T) {
	r := explained(t)
	const want = `
10.1.2.3:80: looked up as the address 10.1.2.3
served by destCIDR
1. destHost: keys 1, backends 1
   no host, address or pattern equals it
2. destCIDR: keys 3, backends 6
   prefix 10.1.0.0/16
     agent a, load 3: serves
     agent b, load 1: in failure zone west, while this server prefers east
     agent c, load 0: draining: only if nothing else is left
     agent d, load 0: left a dial unanswered and has been silent since: only if nothing else is left
   prefix 10.0.0.0/8
     agent e, load 0: only if every backend of destCIDR (prefix 10.1.0.0/16) fails; has no failure zone, while this server prefers east
3. default: keys 4, backends 4
   any destination
     agent a, load 3: only if every backend of destCIDR (prefix 10.1.0.0/16) fails
     agent b, load 1: only if every backend of destCIDR (prefix 10.1.0.0/16) fails; in failure zone west, while this server prefers east
     agent c, load 0: only if every backend of destCIDR (prefix 10.1.0.0/16) fails; draining: only if nothing else is left
     agent d, load 0: only if every backend of destCIDR (prefix 10.1.0.0/16) fails; left a dial unanswered and has been silent since: only if nothing else is left
not considered:
  agent f: destHost: none of its hosts, patterns and addresses (1) is this one; destCIDR: none of its prefixes (1) covers it; default: opted out with exclude-default=true
`
	if got := "\n" + r.Explain("10.1.2.3:80").Text(10); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestExplainLimitsAndEmptyAnswers(t *testing.T) {
	r := explained(t)
	if text := r.Explain("10.1.2.3:80").Text(1); !strings.Contains(text, "     and 3 more\n") {
		t.Errorf("the limit is not kept:\n%s", text)
	}
	only := New[*fake](Config{Strategies: []Strategy{DestHost, DestCIDR, DefaultRoute}})
	for i := range 3 {
		only.Join(&fake{}, member(t, fmt.Sprint("agent", i), "cidr=10.0.0.0/8"))
	}
	x := only.Explain("name:80")
	if x.Serving != -1 || len(x.Others) != 3 {
		t.Fatalf("serving %d, others %d", x.Serving, len(x.Others))
	}
	text := x.Text(1)
	for _, want := range []string{
		"name:80: looked up as the name name\n", "nobody would serve it", "No agent available",
		"no connected agent is here: it takes agents that present host, ipv4 or ipv6\n",
		"prefixes cover addresses, and this is a name\n",
		"it takes agents that present default-route=true\n",
		"agent agent0: destHost: presents no host, ipv4 or ipv6; destCIDR: its prefixes cover addresses, and this is a name; defaultRoute: does not present default-route=true\n",
		"  and 2 more\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if text := only.Explain(":80").Text(0); !strings.Contains(text, "no host in it") {
		t.Errorf("an address without a host:\n%s", text)
	}
}

// TestExplainAgreesWithPick: what is chosen is what was said to serve.
func TestExplainAgreesWithPick(t *testing.T) {
	r := explained(t)
	for _, address := range []string{"x:1", "10.1.1.1:1", "10.2.1.1:1", "192.168.1.1:1", "elsewhere:1"} {
		serves := map[*fake]bool{}
		x := r.Explain(address)
		for _, c := range x.Managers[x.Serving].Matches[0].Candidates {
			if c.Serves {
				serves[c.Backend] = true
			}
		}
		for range 50 {
			if b, _ := r.Pick(address, nil); !serves[b] {
				t.Errorf("%s: %s was chosen, of whom it was not said", address, b.id)
			}
		}
	}
}
