package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Readings are numbers that are read when the metrics are collected. The
// functions must be safe for concurrent use; one that is nil reads as nothing.
type Readings struct {
	// Managers sizes the backend managers, in their order.
	Managers func() []ManagerSize
	// Links counts the agents' links.
	Links func() LinkCounts
	// Budget is the flow budget: credit that is out, and its limit, in bytes.
	Budget func() (used, limit int64)
	// ServerCount is the number of servers that agents are told.
	ServerCount func() int
}

// ManagerSize is the size of one backend manager.
type ManagerSize struct {
	Strategy string
	Keys     int // what ready_backends has always counted: agent IDs, or hosts
	Backends int // links that it may choose
}

// LinkCounts counts live links by state; one link can be in several.
type LinkCounts struct {
	Connected int // all
	Backend   int // dials may come to it
	Draining  int
	Suspect   int // it left a dial unanswered and has been silent since
}

// readingsCollector shows the readings.
type readingsCollector struct {
	// Fixed after construction.
	strategies []string
	readings   *atomic.Pointer[Readings]

	ready, readyOld, candidates *prometheus.Desc
	links, budget, budgetLimit  *prometheus.Desc
	servers                     *prometheus.Desc
}

func newReadingsCollector(strategies []string, readings *atomic.Pointer[Readings]) *readingsCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &readingsCollector{
		strategies:  strategies,
		readings:    readings,
		ready:       desc(prefix+"ready_backends", "Distinct keys of the backend manager: agent IDs, or hosts and addresses.", "proxy_strategy"),
		readyOld:    desc(prefix+"ready_backend_connections", "Deprecated: distinct keys of the last backend manager. Use ready_backends."),
		candidates:  desc(ownPrefix+"backend_links", "Links that the backend manager may choose.", "proxy_strategy"),
		links:       desc(ownPrefix+"agent_links", "Links of agents by state; one can be in several.", "state"),
		budget:      desc(ownPrefix+"flow_budget_used_bytes", "Credit that is granted to peers and not used yet, in bytes."),
		budgetLimit: desc(ownPrefix+"flow_budget_limit_bytes", "How much credit may be out at once, in bytes."),
		servers:     desc(ownPrefix+"known_servers", "Servers that agents are told of."),
	}
}

// Describe implements prometheus.Collector.
func (c *readingsCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.ready, c.readyOld, c.candidates, c.links, c.budget, c.budgetLimit, c.servers} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *readingsCollector) Collect(ch chan<- prometheus.Metric) {
	r := c.readings.Load()
	if r == nil {
		r = &Readings{}
	}
	put := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	last := 0
	for _, m := range c.managers(r) {
		put(c.ready, float64(m.Keys), m.Strategy)
		put(c.candidates, float64(m.Backends), m.Strategy)
		last = m.Keys
	}
	put(c.readyOld, float64(last))
	var links LinkCounts
	if r.Links != nil {
		links = r.Links()
	}
	put(c.links, float64(links.Connected), "connected")
	put(c.links, float64(links.Backend), "backend")
	put(c.links, float64(links.Draining), "draining")
	put(c.links, float64(links.Suspect), "suspect")
	var used, limit int64
	if r.Budget != nil {
		used, limit = r.Budget()
	}
	put(c.budget, float64(used))
	put(c.budgetLimit, float64(limit))
	servers := 0
	if r.ServerCount != nil {
		servers = r.ServerCount()
	}
	put(c.servers, float64(servers))
}

// managers are the configured ones, each once, with the sizes that are known.
func (c *readingsCollector) managers(r *Readings) []ManagerSize {
	sizes := map[string]ManagerSize{}
	if r.Managers != nil {
		for _, m := range r.Managers() {
			sizes[m.Strategy] = m
		}
	}
	list := make([]ManagerSize, 0, len(c.strategies))
	seen := map[string]bool{}
	for _, name := range c.strategies {
		if !seen[name] {
			seen[name] = true
			list = append(list, ManagerSize{Strategy: name, Keys: sizes[name].Keys, Backends: sizes[name].Backends})
		}
	}
	return list
}
