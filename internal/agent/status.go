package agent

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/culvert-proxy/culvert/internal/agent/endpoint"
	"github.com/culvert-proxy/culvert/internal/agent/fleet"
	"github.com/culvert-proxy/culvert/internal/servercounter"
)

// shownConnections bounds the list on the page for people.
const shownConnections = 200

// Status is what the agent is connected to, for /statusz.
type Status struct {
	AgentID     string
	Instance    string
	Identifiers string
	Now         time.Time
	Since       time.Time
	Draining    bool
	Fleet       fleet.Status
	Answers     []servercounter.Answer // what servers say their number is
	Connections []endpoint.Info
}

// Gatherer gives the agent's metrics to whoever runs it without ports.
func (a *Agent) Gatherer() prometheus.Gatherer { return a.metrics.Gatherer() }

// Status describes the agent at this moment.
func (a *Agent) Status() Status {
	return Status{
		AgentID:     a.cfg.AgentID,
		Instance:    a.instance,
		Identifiers: a.identifiers.shown(),
		Now:         time.Now(),
		Since:       a.started,
		Draining:    a.draining.Load(),
		Fleet:       a.fleet.Load().Status(),
		Answers:     a.received.Answers(),
		Connections: a.endpoints.Connections(),
	}
}

// String is the page for people.
func (s Status) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "proxy-agent %s, instance %s, up %s\nidentifiers: %s\n", s.AgentID, s.Instance, age(s.Now, s.Since), cmp.Or(s.Identifiers, "none"))
	if s.Draining {
		b.WriteString("DRAINING\n")
	}
	s.writeLinks(&b)
	fmt.Fprintf(&b, "\nconnections: %d\n", len(s.Connections))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  endpoint\tconnected to\tup\tstate\tbytes up\tbytes down\tqueued up\tqueued down\twindow")
	for _, c := range s.Connections[:min(len(s.Connections), shownConnections)] {
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\n", c.Address, c.Remote, age(s.Now, c.Since), c.State, c.Up, c.Down, c.UpQueued, c.DownQueued, c.Window)
	}
	w.Flush() //nolint:errcheck // a strings.Builder takes everything
	if rest := len(s.Connections) - shownConnections; rest > 0 {
		fmt.Fprintf(&b, "  and %d more (?format=json lists all)\n", rest)
	}
	return b.String()
}

func age(now, then time.Time) string {
	if then.IsZero() {
		return "-"
	}
	return now.Sub(then).Round(time.Second).String()
}

func (s Status) writeLinks(b *strings.Builder) {
	fmt.Fprintf(b, "\nlinks: %d of %d servers\n", len(s.Fleet.Links), s.Fleet.Servers)
	said := map[string]int{}
	for _, answer := range s.Answers {
		said[answer.ServerID] = answer.Count
	}
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  server\taddress\tup\tsays it is one of\tround trip\theard\textensions")
	for _, l := range s.Fleet.Links {
		name := l.ServerID
		if l.Draining {
			name += " (leaving)"
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%d\t%s\t%s ago\t%s\n", name, l.Address, age(s.Now, l.Since), said[l.ServerID],
			l.MinRTT.Round(time.Microsecond), age(s.Now, l.LastReceived), cmp.Or(l.Extensions.String(), "none (old server)"))
	}
	w.Flush() //nolint:errcheck // a strings.Builder takes everything
	for _, f := range s.Fleet.Failures {
		fmt.Fprintf(b, "  %s failed %s ago: %s\n", f.Address, age(s.Now, f.When), f.Text)
	}
}
