package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/culvert-proxy/culvert/internal/server/metrics"
	"github.com/culvert-proxy/culvert/tunnel/flow"
)

// Gatherer gives the server's metrics to whoever runs it without ports.
func (s *Server) Gatherer() prometheus.Gatherer { return s.metrics.Gatherer() }

// readings are the numbers that the metrics read when they are collected, where
// they are kept, so that no gauge can go stale.
func (s *Server) readings(budget *flow.Budget) metrics.Readings {
	return metrics.Readings{
		Managers:    s.managerSizes,
		Links:       s.linkCounts,
		Budget:      func() (used, limit int64) { return budget.Used(), budget.Limit() },
		ServerCount: func() int { return s.counter.CountServers() },
	}
}

func (s *Server) managerSizes() []metrics.ManagerSize {
	counts := s.router.Counts()
	sizes := make([]metrics.ManagerSize, len(counts))
	for i, c := range counts {
		sizes[i] = metrics.ManagerSize{Strategy: c.Strategy.String(), Keys: c.Keys, Backends: c.Backends}
	}
	return sizes
}

func (s *Server) linkCounts() (n metrics.LinkCounts) {
	for _, l := range s.agents.Statuses() {
		n.Connected++
		n.Backend += one(l.Backend)
		n.Draining += one(l.Draining)
		n.Suspect += one(l.Suspect)
	}
	return n
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
