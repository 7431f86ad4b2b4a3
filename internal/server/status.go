package server

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/culvert-proxy/culvert/internal/server/agentlink"
	"github.com/culvert-proxy/culvert/internal/server/relay"
)

// shownTunnels bounds the list of tunnels on the page for people.
const shownTunnels = 200

// Status is what the server is connected to, for /statusz.
type Status struct {
	ServerID    string
	Mode        Mode
	Now         time.Time
	Since       time.Time
	Stopping    bool
	ServerCount int
	Strategies  []string // with their numbers
	Links       []agentlink.Status
	Tunnels     []relay.TunnelStatus // dials among them; oldest first
	LastErrors  []Failure            // newest first
}

// Status describes the server at this moment.
func (s *Server) Status() Status {
	return Status{
		ServerID:    s.cfg.ServerID,
		Mode:        s.cfg.Mode,
		Now:         time.Now(),
		Since:       s.started,
		Stopping:    s.stopping.Load(),
		ServerCount: s.counter.CountServers(),
		Strategies:  s.readiness(),
		Links:       s.agents.Statuses(),
		Tunnels:     s.relay.Snapshot().Tunnels,
		LastErrors:  s.failures.list(),
	}
}

// String is the page for people.
func (s Status) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "proxy-server %s, %s frontend, up %s, announces %d server(s)\n", s.ServerID, s.Mode, age(s.Now, s.Since), s.ServerCount)
	if s.Stopping {
		b.WriteString("STOPPING\n")
	}
	for _, line := range s.Strategies {
		fmt.Fprintln(&b, line)
	}
	s.writeLinks(&b)
	s.writeTunnels(&b)
	fmt.Fprintf(&b, "\nlast errors: %d\n", len(s.LastErrors))
	for _, f := range s.LastErrors {
		fmt.Fprintf(&b, "  %s ago  %s  %s: %s\n", age(s.Now, f.At), f.Endpoint, f.Reason, f.Text)
	}
	return b.String()
}

func (s Status) writeLinks(b *strings.Builder) {
	fmt.Fprintf(b, "\nlinks: %d\n", len(s.Links))
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  agent\tfrom\tup\tstate\ttunnels\tload\tround trip\theard\textensions")
	for _, l := range s.Links {
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%d\t%d\t%s\t%s ago\t%s\n", l.AgentID, l.Address, age(s.Now, l.Since), linkState(l),
			l.Tunnels, l.Load, l.MinRTT.Round(time.Microsecond), age(s.Now, l.LastReceived), cmp.Or(l.Extensions.String(), "none (old agent)"))
	}
	w.Flush() //nolint:errcheck // a strings.Builder takes everything
}

func linkState(l agentlink.Status) string {
	switch {
	case !l.Backend:
		return "not a backend yet"
	case l.Draining:
		return "draining"
	case l.Suspect:
		return "suspect"
	}
	return "ready"
}

func (s Status) writeTunnels(b *strings.Builder) {
	fmt.Fprintf(b, "\ntunnels: %d\n", len(s.Tunnels))
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  endpoint\tagent\tconnection\tup\tstate\tbytes up\tbytes down\tqueued up\tqueued down")
	for _, t := range s.Tunnels[:min(len(s.Tunnels), shownTunnels)] {
		fmt.Fprintf(w, "  %s\t%s\t%d\t%s\t%s\t%d\t%d\t%d\t%d\n", t.Request.Address, cmp.Or(t.Peer.AgentID, "-"), t.ConnectionID,
			age(s.Now, t.Since), t.State, t.BytesUp, t.BytesDown, t.QueuedUp, t.QueuedDown)
	}
	w.Flush() //nolint:errcheck // a strings.Builder takes everything
	if rest := len(s.Tunnels) - shownTunnels; rest > 0 {
		fmt.Fprintf(b, "  and %d more (?format=json lists all)\n", rest)
	}
}

func age(now, then time.Time) string {
	if then.IsZero() {
		return "-"
	}
	return now.Sub(then).Round(time.Second).String()
}

// Failure is one of the last things that went wrong.
type Failure struct {
	At       time.Time
	Endpoint string
	Reason   string
	Text     string
}

// failures keeps the last few. Safe for concurrent use.
type failures struct {
	// Guarded by mu.
	mu   sync.Mutex
	last []Failure
}

const keptFailures = 20

func (f *failures) add(x Failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = append(f.last, x)
	if len(f.last) > keptFailures {
		f.last = slices.Delete(f.last, 0, len(f.last)-keptFailures)
	}
}

func (f *failures) list() []Failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.Clone(f.last)
	slices.Reverse(all)
	return all
}
