package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/culvert-proxy/culvert/internal/agent/serverlink"
)

// links keeps one link to each target. (The counting of servers is fleet's.)
type links struct {
	// Fixed after construction.
	agent *Agent

	// Guarded by mu.
	mu      sync.Mutex
	cancel  context.CancelFunc
	live    map[string]*serverlink.Link // by server ID
	drained bool
	running sync.WaitGroup
}

func newLinks(a *Agent) *links {
	return &links{agent: a, live: map[string]*serverlink.Link{}, cancel: func() {}}
}

func (l *links) start(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	l.mu.Lock()
	l.cancel = cancel
	l.mu.Unlock()
	l.running.Go(func() { l.sync(ctx) })
}

func (l *links) sync(ctx context.Context) {
	tick := time.NewTicker(l.agent.cfg.SyncInterval)
	defer tick.Stop()
	for {
		for _, t := range l.agent.directory.Targets(ctx) {
			l.attempt(ctx, t)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (l *links) attempt(ctx context.Context, t serverlink.Target) {
	l.mu.Lock()
	for _, k := range l.live {
		if k.Target() == t || l.drained {
			l.mu.Unlock()
			return
		}
	}
	l.mu.Unlock()
	k, err := l.agent.connector.Connect(ctx, t)
	if err != nil {
		l.agent.log.V(1).Info("Cannot connect", "server", t.Address, "cause", err.Error())
		return
	}
	l.mu.Lock()
	if l.live[k.ServerID()] != nil || l.drained || ctx.Err() != nil {
		l.mu.Unlock()
		k.Drop()
		return
	}
	l.live[k.ServerID()] = k
	l.agent.metrics.Fleet().Connected(len(l.live))
	l.mu.Unlock()
	l.agent.log.V(1).Info("Connected", "serverID", k.ServerID(), "server", t.Address)
	l.running.Go(func() {
		err := k.Run(silent{})
		l.mu.Lock()
		delete(l.live, k.ServerID())
		l.agent.metrics.Fleet().Connected(len(l.live))
		l.mu.Unlock()
		l.agent.log.V(1).Info("Link ended", "serverID", k.ServerID(), "cause", fmt.Sprint(err))
	})
}

type silent struct{}

func (silent) CountChanged(int) {}
func (silent) Draining()        {}

func (l *links) all() []*serverlink.Link {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*serverlink.Link, 0, len(l.live))
	for _, k := range l.live {
		all = append(all, k)
	}
	return all
}

func (l *links) connected() int { return len(l.all()) }

func (l *links) drain() {
	l.mu.Lock()
	l.drained = true
	l.mu.Unlock()
	for _, k := range l.all() {
		k.Drain()
	}
}

func (l *links) close(ctx context.Context) {
	l.mu.Lock()
	l.cancel()
	l.drained = true
	l.mu.Unlock()
	for _, k := range l.all() {
		k.Close(ctx)
	}
	l.running.Wait()
}

func (l *links) words() string { return fmt.Sprint(l.connected(), " connected") }

func (l *links) statuses() []LinkStatus {
	links := l.all()
	all := make([]LinkStatus, len(links))
	for i, k := range links {
		all[i] = LinkStatus{ServerID: k.ServerID(), Address: k.Target().Address, Since: k.Since(), ServerCount: k.ServerCount(),
			Extensions: k.Extensions().String(), RoundTrip: k.MinRTT(), LastReceived: k.LastReceived()}
	}
	return all
}
