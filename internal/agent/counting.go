package agent

import (
	"context"

	"github.com/culvert-proxy/culvert/internal/lease"
	"github.com/culvert-proxy/culvert/internal/servercounter"
)

// counting composes what tells how many servers there are, and notes what has to
// run beside the agent for it.
func (a *Agent) counting(deps Deps) (servercounter.ServerCounter, error) {
	a.received = servercounter.NewReceived(servercounter.ReceivedConfig{Changed: a.wake})
	own, err := a.ownCounter(deps)
	if err != nil {
		return nil, err
	}
	return servercounter.NewSource(servercounter.SourceConfig{
		Own:      own,
		Received: a.received,
		Source:   a.cfg.CountSource,
		Respect:  a.cfg.RespectReceived,
	})
}

// ownCounter counts without asking servers; nil if the agent was given no such way.
func (a *Agent) ownCounter(deps Deps) (servercounter.ServerCounter, error) {
	switch {
	case a.cfg.CountLeases:
		client := deps.Leases
		if client == nil {
			var err error
			if client, err = lease.NewClient(a.cfg.Kube); err != nil {
				return nil, err
			}
		}
		counter := lease.NewCounter(lease.CounterConfig{
			Client:    client,
			Namespace: a.cfg.LeaseNamespace,
			Selector:  a.cfg.LeaseSelector,
			Changed:   a.wake,
			Observer:  a.metrics.Leases(),
			Logger:    a.log,
		})
		a.beside = append(a.beside, counter.Run)
		return counter, nil
	case a.cfg.ServerCountFile != "":
		counter := servercounter.NewFile(servercounter.FileConfig{
			Path:     a.cfg.ServerCountFile,
			Fallback: 1,
			Changed:  a.wake,
			Reporter: a.metrics.Leases(),
			Logger:   a.log,
		})
		a.beside = append(a.beside, counter.Run)
		return counter, nil
	}
	return nil, nil
}

// wake makes the fleet ask its counter again; counters call it when they change.
func (a *Agent) wake() {
	if f := a.fleet.Load(); f != nil {
		f.Wake()
	}
}

// background runs what counts, until ctx ends.
func (a *Agent) background(ctx context.Context) {
	for _, run := range a.beside {
		a.running.Go(func() {
			if err := run(ctx); err != nil {
				a.log.Error(err, "Counting of servers ended; the last number holds")
			}
		})
	}
}
