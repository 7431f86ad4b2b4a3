package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestNextForEveryPair(t *testing.T) {
	want := map[state]map[event]state{
		idle:     {runCalled: starting, allStarted: idle, endWanted: idle, allStopped: idle},
		starting: {runCalled: starting, allStarted: running, endWanted: stopping, allStopped: starting},
		running:  {runCalled: running, allStarted: running, endWanted: stopping, allStopped: running},
		stopping: {runCalled: stopping, allStarted: stopping, endWanted: stopping, allStopped: stopped},
		stopped:  {runCalled: stopped, allStarted: stopped, endWanted: stopped, allStopped: stopped},
	}
	for s := idle; s <= stopped; s++ {
		for e := runCalled; e <= allStopped; e++ {
			if got := next(s, e); got != want[s][e] {
				t.Errorf("next(%d, %d) = %d, want %d", s, e, got, want[s][e])
			}
		}
	}
}

// diary notes what parts do, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(s string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, s)
}

func (d *diary) check(t *testing.T, want ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.lines, want) {
		t.Errorf("the parts did %q, want %q", d.lines, want)
	}
}

func (d *diary) part(name string) Part {
	served := make(chan struct{})
	return Part{
		Name:  name,
		Start: func(context.Context) error { d.note("start " + name); return nil },
		Serve: func() error { <-served; return nil },
		Stop:  func(context.Context) error { d.note("stop " + name); close(served); return nil },
	}
}

func TestStartsInOrderAndStopsInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		g := NewGroup(time.Minute)
		g.Add(d.part("a"))
		g.Add(Part{Name: "empty"})
		g.Add(d.part("b"))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- g.Run(ctx) }()
		synctest.Wait()
		if !g.Running() {
			t.Error("the group does not say that it runs")
		}
		d.check(t, "start a", "start b")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		d.check(t, "start a", "start b", "stop b", "stop a")
		if g.Running() {
			t.Error("the group says that it runs")
		}
		if err := g.Run(ctx); err == nil {
			t.Error("a group ran twice")
		}
	})
}

func TestAFailedStartStopsWhatWasStarted(t *testing.T) {
	d := &diary{}
	g := NewGroup(time.Minute)
	g.Add(d.part("a"))
	cause := errors.New("address in use")
	g.Add(Part{Name: "b", Start: func(context.Context) error { return cause }, Stop: func(context.Context) error { d.note("stop b"); return nil }})
	g.Add(d.part("c"))
	err := g.Run(t.Context())
	if !errors.Is(err, cause) || err.Error() != "b: address in use" {
		t.Errorf("Run: %v", err)
	}
	d.check(t, "start a", "stop a")
}

func TestAContextThatEndsDuringStart(t *testing.T) {
	d := &diary{}
	g := NewGroup(time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	p := d.part("a")
	p.Start = func(context.Context) error { cancel(); return nil }
	g.Add(p)
	g.Add(d.part("b"))
	if err := g.Run(ctx); err != nil {
		t.Error(err)
	}
	d.check(t, "stop a")
}

func TestAPartThatFailsLaterEndsTheGroup(t *testing.T) {
	for _, cause := range []error{errors.New("boom"), nil} {
		synctest.Test(t, func(t *testing.T) {
			d := &diary{}
			g := NewGroup(time.Minute)
			g.Add(d.part("a"))
			g.Add(Part{Name: "b", Serve: func() error { <-time.After(time.Hour); return cause }})
			err := g.Run(t.Context())
			if err == nil || !strings.HasPrefix(err.Error(), "b: ") || (cause != nil && !errors.Is(err, cause)) {
				t.Errorf("Run: %v", err)
			}
			d.check(t, "start a", "stop a")
		})
	}
}

func TestAFailureWhileOthersStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		g := NewGroup(time.Minute)
		g.Add(Part{Name: "a", Serve: func() error { return errors.New("boom") }})
		g.Add(Part{Name: "b", Start: func(context.Context) error { synctest.Wait(); return nil }})
		g.Add(d.part("c"))
		if err := g.Run(t.Context()); err == nil || err.Error() != "a: boom" {
			t.Errorf("Run: %v", err)
		}
		d.check(t)
	})
}

func TestStoppingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		g := NewGroup(5 * time.Second)
		forever := make(chan struct{})
		defer close(forever)
		g.Add(d.part("a"))
		g.Add(Part{Name: "gentle", Stop: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }})
		g.Add(Part{Name: "deaf", Stop: func(context.Context) error { <-forever; return nil }})
		g.parts[0].Start = nil
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := g.Run(ctx)
		if took := time.Since(start); took != time.Second+5*time.Second+stopGrace {
			t.Errorf("took %v", took)
		}
		want := "deaf: did not stop in time\ngentle: context deadline exceeded"
		if err == nil || err.Error() != want {
			t.Errorf("Run: %v, want %s", err, want)
		}
		d.check(t, "stop a")
	})
}

func ExampleGroup() {
	g := NewGroup(time.Second)
	ctx, cancel := context.WithCancel(context.Background())
	g.Add(Part{Name: "listener", Start: func(context.Context) error { fmt.Println("listening"); return nil },
		Stop: func(context.Context) error { fmt.Println("closed"); return nil }})
	g.Add(Part{Name: "trigger", Start: func(context.Context) error { cancel(); return nil }})
	fmt.Println(g.Run(ctx))
	// Output:
	// listening
	// closed
	// <nil>
}
