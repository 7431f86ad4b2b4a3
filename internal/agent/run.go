package agent

import "context"

// Run serves until ctx ends, then drains as COMPAT 11 says: DRAIN to the servers
// at once; for the lame-duck time new dials are still served as a last resort;
// after it the agent leaves as soon as no tunnel is open, at the drain timeout at
// the latest if there is one. It closes everything before it returns.
func (a *Agent) Run(ctx context.Context) error {
	defer a.Close()
	work, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := a.identifiers.first(ctx); err != nil {
		return err
	}
	a.log.Info("Connecting", "hosts", a.cfg.ServerHosts, "port", a.cfg.ServerPort)
	a.background(work)
	a.running.Go(func() { a.fleet.Load().Run(work) })
	<-ctx.Done()
	a.draining.Store(true)
	a.log.Info("Draining", "cause", context.Cause(ctx).Error(), "tunnels", a.endpoints.Open())
	if err := a.fleet.Load().Drain(context.Background()); err != nil {
		a.log.Info("Tunnels are still open at the end of --drain-timeout; cutting them", "tunnels", a.endpoints.Open())
	}
	cancel()
	a.running.Wait()
	return nil
}

// Close ends everything at once and waits for it. It may be called again.
func (a *Agent) Close() {
	a.closing.Do(func() {
		if a.received != nil {
			a.received.Close()
		}
		a.endpoints.Close()
		if a.health != nil {
			a.health.Close()
		}
		if a.admin != nil {
			a.admin.Close()
		}
	})
}
