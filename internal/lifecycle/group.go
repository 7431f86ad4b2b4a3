package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// stopGrace is how long a part may outlast the deadline that its Stop was given,
// before it is given up.
const stopGrace = time.Second

// errTwice is returned by a second Run.
var errTwice = errors.New("lifecycle: a group runs once")

// Part is one thing that starts and stops. Each function may be nil.
type Part struct {
	// Name is for errors.
	Name string
	// Start brings the part up and returns when it is ready for others. ctx ends
	// when the group is to stop; an error ends the group.
	Start func(ctx context.Context) error
	// Serve runs in a goroutine of its own once Start has returned. It is to
	// return after Stop was called; returning earlier ends the group, with its
	// error.
	Serve func() error
	// Stop ends the part, gently until ctx ends and by force then. It is called
	// once if Start has succeeded.
	Stop func(ctx context.Context) error
}

// Group is an ordered list of parts. Add is called before Run, from one
// goroutine.
type Group struct {
	// Fixed after construction.
	stopTimeout time.Duration
	failed      chan error // capacity 1: the first failure of a running part

	parts []*runningPart

	mu sync.Mutex
	// Guarded by mu.
	state state
}

type runningPart struct {
	Part
	served chan struct{} // closed when Serve has returned; nil without Serve
}

// NewGroup returns an empty group that takes at most stopTimeout to stop its
// parts gently; 0 means that they are not hurried.
func NewGroup(stopTimeout time.Duration) *Group {
	return &Group{stopTimeout: stopTimeout, failed: make(chan error, 1)}
}

// Add appends a part: it starts after those before it and stops before them.
func (g *Group) Add(p Part) { g.parts = append(g.parts, &runningPart{Part: p}) }

// Run starts all parts, waits until ctx ends or one of them fails, and stops
// them. It returns the first failure joined with what went wrong while stopping;
// nil if there was nothing of either.
func (g *Group) Run(ctx context.Context) error {
	if !g.move(runCalled) {
		return errTwice
	}
	started, failure := g.start(ctx)
	if failure == nil && started == len(g.parts) {
		g.move(allStarted)
		select {
		case <-ctx.Done():
		case failure = <-g.failed:
		}
	}
	g.move(endWanted)
	err := g.stop(context.WithoutCancel(ctx), started)
	g.move(allStopped)
	return errors.Join(failure, err)
}

// Running reports whether all parts are up and none is being stopped. Safe for
// concurrent use.
func (g *Group) Running() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state == running
}

// move takes the group to its next state and reports whether that is another one.
func (g *Group) move(e event) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.state
	g.state = next(before, e)
	return g.state != before
}

// start returns how many parts were started, and why not all were, unless ctx
// ended.
func (g *Group) start(ctx context.Context) (started int, failure error) {
	for i, p := range g.parts {
		select {
		case failure = <-g.failed:
			return i, failure
		default:
		}
		if ctx.Err() != nil {
			return i, nil //nolint:nilerr // it was asked to end, which is no failure
		}
		if p.Start != nil {
			if err := p.Start(ctx); err != nil {
				return i, named(p, err)
			}
		}
		if p.Serve != nil {
			p.served = make(chan struct{})
			go g.serve(p)
		}
	}
	return len(g.parts), nil
}

func (g *Group) serve(p *runningPart) {
	defer close(p.served)
	err := p.Serve()
	if err == nil {
		err = errors.New("ended by itself")
	}
	select {
	case g.failed <- named(p, err): // nobody listens any more once the group stops
	default:
	}
}

// stop stops the first n parts in reverse order, all under one deadline.
func (g *Group) stop(ctx context.Context, n int) error {
	cancel := context.CancelFunc(func() {})
	if g.stopTimeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, g.stopTimeout)
	}
	defer cancel()
	var errs []error
	for i := n - 1; i >= 0; i-- {
		if err := stopPart(ctx, g.parts[i]); err != nil {
			errs = append(errs, named(g.parts[i], err))
		}
	}
	return errors.Join(errs...)
}

// stopPart calls Stop and waits for Serve to return, no longer than stopGrace
// behind ctx's end.
func stopPart(ctx context.Context, p *runningPart) error {
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		if p.Stop != nil {
			err = p.Stop(ctx)
		}
		if p.served != nil {
			<-p.served
		}
	}()
	select {
	case <-done:
		return err
	case <-ctx.Done():
	}
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case <-done:
		return err
	case <-grace.C:
		return errors.New("did not stop in time")
	}
}

func named(p *runningPart, err error) error { return fmt.Errorf("%s: %w", p.Name, err) }
