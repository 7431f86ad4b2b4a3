package fleet

import (
	"context"
	"time"
)

// Drain lets the agent leave gracefully. At once it connects to nobody any more
// and asks all servers to give their dials to others; for the lame-duck time it
// still serves those that come; then it refuses them, and Drain returns as soon
// as nothing is open any more. The error says that DrainTimeout or ctx ended
// first. Links stay; the end of Run's context closes them.
func (f *Fleet) Drain(ctx context.Context) error {
	if f.cfg.DrainTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.cfg.DrainTimeout)
		defer cancel()
	}
	alone := f.leave()
	lame := time.NewTimer(f.cfg.LameDuck)
	defer lame.Stop()
	select {
	case <-lame.C:
	case <-alone: // nobody is left who could ask for a dial
	case <-ctx.Done():
	}
	f.deps.Rooms.Refuse()
	return f.deps.Rooms.WaitIdle(ctx)
}

// leave asks all servers to look for others, and returns what tells when there
// are none.
func (f *Fleet) leave() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan.stopped = true
	for h := range f.all {
		h.link.Drain()
	}
	if f.alone == nil {
		f.alone = make(chan struct{})
	}
	alone := f.alone
	if len(f.all) == 0 {
		close(f.alone)
		f.alone = nil
	}
	f.log.Info("Leaving", "links", len(f.all), "lameDuck", f.cfg.LameDuck)
	return alone
}
