package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/culvert-proxy/culvert/internal/observe"
)

// openPorts opens health before admin: probes should find it first.
func (s *Server) openPorts(deps Deps) error {
	if deps.NoPorts {
		return nil
	}
	ctx := context.Background()
	health := observe.Health{
		Checks:        []observe.Check{{Name: "agent-connected", Probe: s.ready}},
		FailureStatus: http.StatusInternalServerError,
		Metrics:       s.metrics.Handler(),
		Detail:        s.readiness,
	}
	var err error
	if s.health, err = observe.Listen(ctx, "health-port", s.cfg.HealthAddress, health.Handler()); err != nil {
		return err
	}
	admin := observe.Admin{
		Metrics:   s.metrics.Handler(),
		Status:    func() fmt.Stringer { return s.Status() },
		Extra:     map[string]http.Handler{"/checkz": http.HandlerFunc(s.explain)},
		Profiling: s.cfg.Profiling,
	}
	s.admin, err = observe.Listen(ctx, "admin-port", s.cfg.AdminAddress, admin.Handler())
	return err
}

// ready is the readiness rule: any strategy has a usable backend. COMPAT 11.
func (s *Server) ready() error {
	if s.stopping.Load() {
		return errors.New("shutting down")
	}
	if !s.router.Ready() {
		return errors.New("no connection to any proxy agent")
	}
	return nil
}

// shownAgents bounds each list of agents in an explanation.
const shownAgents = 50

// readiness lists each manager with its numbers.
func (s *Server) readiness() []string {
	var lines []string
	for _, count := range s.router.Counts() {
		lines = append(lines, fmt.Sprintf("strategy %s: %d backends under %d keys", count.Strategy, count.Backends, count.Keys))
	}
	return lines
}

// explain answers which agents would serve ?address=HOST:PORT, and why the
// others would not. Header Culvert-Serving names the manager that would, or none;
// then the status is that of a CONNECT that finds no agent. `culvert check` asks it.
func (s *Server) explain(w http.ResponseWriter, r *http.Request) {
	address := r.URL.Query().Get("address")
	if address == "" {
		http.Error(w, "the query must hold address=HOST:PORT", http.StatusBadRequest)
		return
	}
	explanation := s.router.Explain(address)
	// The text repeats what was asked, which must not be taken for a page.
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if explanation.Serving >= 0 {
		w.Header().Set("Culvert-Serving", explanation.Managers[explanation.Serving].Strategy.String())
	} else {
		w.Header().Set("Culvert-Serving", "none")
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprint(w, explanation.Text(shownAgents)) //nolint:errcheck // a client that left needs no answer
}
