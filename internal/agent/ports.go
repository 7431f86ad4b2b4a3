package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/culvert-proxy/culvert/internal/observe"
)

// openPorts opens the health port before anything is connected: a probe that
// finds nobody would have the agent restarted.
func (a *Agent) openPorts(deps Deps) error {
	if deps.NoPorts {
		return nil
	}
	ctx := context.Background()
	health := observe.Health{
		Checks:                 []observe.Check{{Name: "server-connected", Probe: a.ready}},
		AlwaysVerboseOnFailure: true,
		FailureStatus:          http.StatusServiceUnavailable,
		Metrics:                a.metrics.Handler(),
	}
	var err error
	if a.health, err = observe.Listen(ctx, "health-server-port", a.cfg.HealthAddress, health.Handler()); err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(a.health.Addr().String())
	if err != nil {
		return err
	}
	admin := observe.Admin{
		MetricsPort: port,
		Status:      func() fmt.Stringer { return a.Status() },
		Profiling:   a.cfg.Profiling,
	}
	a.admin, err = observe.Listen(ctx, "admin-server-port", a.cfg.AdminAddress, admin.Handler())
	return err
}

// ready is the readiness rule: at least one server is connected. COMPAT 4.2.
func (a *Agent) ready() error {
	if !a.fleet.Load().Ready() {
		return errors.New("no servers connected")
	}
	return nil
}
