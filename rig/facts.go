package rig

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// fact is something that can be seen from outside: who has which links, and how
// much is open.
type fact struct {
	what  string // "s1 tunnels"
	value string
	must0 bool // must be "0" at the end of a scenario
}

// look finds all facts, in order.
func (c *Cluster) look() []fact {
	var facts []fact
	for name, s := range c.servers {
		if s.alive() {
			facts = append(facts, s.facts(name)...)
		}
	}
	for name, a := range c.agents {
		if a.alive() {
			facts = append(facts, a.facts(name)...)
		}
	}
	slices.SortFunc(facts, func(a, b fact) int { return strings.Compare(a.what, b.what) })
	return facts
}

// news are the facts that differ from last time. What begins with nothing is
// none.
func (c *Cluster) news() []entry {
	var news []entry
	facts := c.look()
	for _, f := range facts {
		was := "0"
		if i := slices.IndexFunc(c.facts, func(o fact) bool { return o.what == f.what }); i >= 0 {
			was = c.facts[i].value
		}
		if f.value != was {
			news = append(news, entry{f.what, f.value})
		}
	}
	c.facts = facts
	return news
}

func (s *serverProcess) facts(name string) []fact {
	status := s.server.Status()
	var links []string
	for _, l := range status.Links {
		if !l.Backend {
			continue // a duplicate that its agent is about to drop, or one that is ending
		}
		text := l.AgentID
		if l.Draining {
			text += " (draining)"
		}
		if l.Suspect {
			text += " (suspect)"
		}
		links = append(links, text)
	}
	tunnels, dials := 0, 0
	for _, t := range status.Tunnels {
		if t.State == "dialing" {
			dials++
		} else {
			tunnels++
		}
	}
	return []fact{
		{name + " agents", list(links), false},
		{name + " dials", strconv.Itoa(dials), true},
		{name + " tunnels", strconv.Itoa(tunnels), true},
	}
}

func (a *agentProcess) facts(name string) []fact {
	status := a.agent.Status()
	var links []string
	for _, l := range status.Fleet.Links {
		text := l.ServerID
		if l.Draining {
			text += " (leaving)"
		}
		links = append(links, text)
	}
	return []fact{
		{name + " connections", strconv.Itoa(len(status.Connections)), true},
		{name + " servers", list(links), false},
	}
}

// list is "0" for none.
func list(names []string) string {
	if len(names) == 0 {
		return "0"
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// Status describes a process for a transcript: its facts, and one line per
// tunnel or connection, without what depends on chance.
func (c *Cluster) Status(name string) ([]string, error) {
	var facts []fact
	var rows []string
	switch s, a := c.servers[name], c.agents[name]; {
	case s != nil && s.alive():
		facts = s.facts(name)
		for _, t := range s.server.Status().Tunnels {
			rows = append(rows, strings.TrimSpace(fmt.Sprintf("%s %s %s", t.Request.Address, t.State, t.Peer.AgentID)))
		}
	case a != nil && a.alive():
		facts = a.facts(name)
		for _, t := range a.agent.Status().Connections {
			rows = append(rows, fmt.Sprintf("%s %s", t.Address, t.State))
		}
	default:
		return nil, fmt.Errorf("no process %s is running", name)
	}
	slices.Sort(rows)
	var lines []string
	for _, f := range facts {
		lines = append(lines, f.what+": "+f.value)
	}
	return append(lines, rows...), nil
}
