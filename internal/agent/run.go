package agent

import (
	"context"
	"time"
)

// endLimit bounds the last packets of links that end in order.
const endLimit = time.Second

// Run serves until ctx ends, then drains as COMPAT 11 says: DRAIN to the servers
// at once; for the lame-duck time new dials are still served as a last resort;
// after it the agent leaves as soon as no tunnel is open, at the drain timeout at
// the latest if there is one. It closes everything before it returns.
func (a *Agent) Run(ctx context.Context) error {
	defer a.Close()
	work, cancel := context.WithCancel(context.Background())
	defer cancel()
	a.log.Info("Connecting", "hosts", a.cfg.ServerHosts, "port", a.cfg.ServerPort)
	a.links.start(work)
	<-ctx.Done()
	a.draining.Store(true)
	a.log.Info("Draining", "cause", context.Cause(ctx).Error(), "tunnels", a.endpoints.Open())
	a.links.drain()
	a.drain()
	end, stop := context.WithTimeout(context.Background(), endLimit)
	defer stop()
	a.links.close(end)
	return nil
}

// drain waits until the agent may leave.
func (a *Agent) drain() {
	lame := time.NewTimer(a.cfg.LameDuck)
	defer lame.Stop()
	<-lame.C
	ctx := context.Background()
	if a.cfg.DrainTimeout > 0 {
		rest, cancel := context.WithTimeout(ctx, max(0, a.cfg.DrainTimeout-a.cfg.LameDuck))
		defer cancel()
		ctx = rest
	}
	a.endpoints.Refuse()
	if err := a.endpoints.WaitIdle(ctx); err != nil {
		a.log.Info("Tunnels are still open at the end of --drain-timeout; cutting them", "tunnels", a.endpoints.Open())
	}
}

// Close ends everything at once and waits for it. It may be called again.
func (a *Agent) Close() {
	a.closing.Do(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		a.links.close(ended)
		a.endpoints.Close()
		if a.health != nil {
			a.health.Close()
		}
		if a.admin != nil {
			a.admin.Close()
		}
	})
}
