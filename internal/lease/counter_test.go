package lease

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/kubernetes/fake"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// logLines counts the lines of a logger.
type logLines struct {
	mu sync.Mutex
	n  int
}

func (l *logLines) add(string, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
}

func (l *logLines) take() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.n
	l.n = 0
	return n
}

// counting is a running Counter in a bubble.
type counting struct {
	*Counter
	t       *testing.T
	api     *api
	events  *events
	logged  *logLines
	changes atomic.Int64
}

// runCounter starts a counter on a; the test's end stops it.
func runCounter(t *testing.T, a *api) *counting {
	c := &counting{t: t, api: a, events: &events{}, logged: &logLines{}}
	c.Counter = NewCounter(CounterConfig{Client: a, Namespace: namespace, Selector: "k8s-app=konnectivity-server",
		Changed: func() { c.changes.Add(1) }, Observer: c.events, Logger: funcr.New(c.logged.add, funcr.Options{}), Rand: func() float64 { return 0 }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *counting) expect(what string, count int, changed int64) {
	c.t.Helper()
	synctest.Wait()
	if got := c.CountServers(); got != count {
		c.t.Errorf("%s: count %d, want %d", what, got, count)
	}
	if got := c.changes.Swap(0); got != changed {
		c.t.Errorf("%s: %d changes, want %d", what, got, changed)
	}
}

func TestCounterFollowsTheLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		a.set(server("a", time.Now()))
		a.set(server("dead", time.Now().Add(-time.Hour)))
		other := server("other", time.Now())
		other.Labels = map[string]string{"k8s-app": "something-else"}
		a.set(other)
		c := runCounter(t, a)
		c.expect("first sync", 1, 0)
		if !slices.Equal(a.selector, []string{"k8s-app=konnectivity-server", "k8s-app=konnectivity-server"}) {
			t.Errorf("the selector is not in the requests: %q", a.selector)
		}
		if got := c.events.take(); !slices.Equal(got, []string{"list 200 ", "watch 200 "}) {
			t.Errorf("events %q", got)
		}
		a.set(server("b", time.Now()))
		a.set(server("c", time.Now()))
		synctest.Wait()
		c.expect("two more", 3, c.changes.Load())
		a.remove(Name("b"))
		c.expect("one left", 2, 1)
		a.set(server("dead", time.Now()))
		c.expect("one came back", 3, 1)
		a.remove(Name("c"))
		a.remove(Name("dead"))
		a.remove(Name("a"))
		synctest.Wait()
		c.expect("none is one", 1, c.changes.Load())
	})
}

func TestCounterStartsWithItsFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		a.down(forbidden())
		for _, id := range []string{"a", "b", "c"} {
			a.set(server(id, time.Now().Add(time.Hour)))
		}
		c := runCounter(t, a)
		elapse(10 * time.Minute)
		c.expect("forbidden", 1, 0)
		if c.Err() == nil {
			t.Error("no error is shown")
		}
		if got := c.events.take(); !slices.Equal(got, []string{"failed lease", "list 403 Forbidden"}) {
			t.Errorf("events %q", got)
		}
		if n := c.logged.take(); n != 1 {
			t.Errorf("%d lines in 10 minutes", n)
		}
		a.down(nil)
		elapse(30 * time.Second)
		c.expect("permitted", 3, 1)
		if n := c.logged.take(); n != 2 || c.Err() != nil {
			t.Errorf("%d lines; error %v", n, c.Err())
		}
	})
}

// TestCounterAtExpiry: one LIST decides, and while there is none the number holds.
func TestCounterAtExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		c := runCounter(t, a)
		a.set(server("a", time.Now()))
		a.set(server("b", time.Now()))
		synctest.Wait()
		c.expect("two", 2, c.changes.Load())
		// The watch is dead and does not know it: a renews, b does not.
		a.hangUp(true)
		a.count("list")
		elapse(20 * time.Second)
		a.set(server("a", time.Now()))
		elapse(10*time.Second - time.Nanosecond)
		c.expect("before the end", 2, 0)
		if n := a.count("list"); n != 0 {
			t.Errorf("%d lists before the end", n)
		}
		elapse(time.Second)
		c.expect("a renewed, as one list says", 1, 1)
		if n := a.count("list"); n != 1 {
			t.Errorf("%d lists", n)
		}
		// The API is out: the number holds, for as long as it takes.
		a.set(server("b", time.Now()))
		elapse(time.Minute)
		c.expect("a ran out, b is not known", 1, 0)
		a.down(errors.New("connection refused"))
		c.logged.take()
		elapse(time.Hour)
		c.expect("out for an hour", 1, 0)
		if n := a.count("list"); n > 200 {
			t.Errorf("%d lists in an hour", n)
		}
		a.down(nil)
		a.set(server("c", time.Now()))
		a.set(server("d", time.Now()))
		elapse(35 * time.Second)
		c.expect("back", 1, c.changes.Load())
	})
}

// TestCounterHoldsWhileTheAPIIsOut: all leases run out unseen, and live again.
func TestCounterHoldsWhileTheAPIIsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		c := runCounter(t, a)
		renew := func() {
			for _, id := range []string{"a", "b", "c"} {
				a.set(server(id, time.Now()))
			}
			synctest.Wait()
		}
		renew()
		c.expect("three", 3, c.changes.Load())
		a.hangUp(true)
		a.down(errors.New("connection refused"))
		elapse(time.Hour)
		c.expect("out for an hour", 3, 0)
		renew() // the servers can write before we can read
		a.down(nil)
		for range 10 {
			elapse(15 * time.Second)
			renew()
			c.expect("back", 3, 0)
		}
	})
}

// TestCounterWithSkew: the servers' clocks are two hours behind ours. Each counts
// once it was seen to renew.
func TestCounterWithSkew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		behind := func(id string) { a.set(server(id, time.Now().Add(-2*time.Hour))) }
		behind("a")
		behind("b")
		behind("c")
		c := runCounter(t, a)
		c.expect("first sight", 1, 0)
		for range 20 {
			elapse(15 * time.Second)
			behind("a")
			behind("b")
			synctest.Wait()
		}
		c.expect("two renew", 2, c.changes.Load())
		for range 3 {
			elapse(15 * time.Second)
			behind("a")
		}
		synctest.Wait()
		c.expect("one renews", 1, 1)
	})
}

func TestCounterThatMayNotWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		a.mu.Lock()
		a.fail["watch"] = forbidden()
		a.mu.Unlock()
		a.set(server("a", time.Now()))
		c := runCounter(t, a)
		for range 40 {
			elapse(15 * time.Second)
			a.set(server("a", time.Now()))
			a.set(server("b", time.Now()))
		}
		c.expect("listed now and then", 2, 1)
		if n := c.logged.take(); n > 3 {
			t.Errorf("%d lines in 10 minutes", n)
		}
		if c.Err() == nil {
			t.Error("no error is shown")
		}
	})
}

// unsupported tells reflectors that client-go's fake knows no streaming lists.
type unsupported struct {
	coordinationclient.LeasesGetter
}

func (unsupported) IsWatchListSemanticsUnSupported() bool { return true }

// TestWithClientGosFake is a whole life with somebody else's idea of an API.
func TestWithClientGosFake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := unsupported{fake.NewClientset().CoordinationV1()}
		label := map[string]string{"k8s-app": "konnectivity-server"}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		counter := NewCounter(CounterConfig{Client: client, Namespace: namespace, Selector: "k8s-app=konnectivity-server"})
		wg.Go(func() { _ = counter.Run(ctx) })
		var publishers []*Publisher
		for _, id := range []string{"a", "b", "c"} {
			p := NewPublisher(PublisherConfig{Client: client, Namespace: namespace, ServerID: id, Labels: label})
			publishers = append(publishers, p)
			wg.Go(func() { _ = p.Run(ctx) })
		}
		collector := NewCollector(CollectorConfig{Client: client, Namespace: namespace, Labels: label, ServerID: "a"})
		wg.Go(func() { _ = collector.Run(ctx) })
		elapse(3 * time.Minute)
		synctest.Wait()
		if counter.CountServers() != 3 || collector.CountServers() != 3 {
			t.Errorf("counter %d, collector %d", counter.CountServers(), collector.CountServers())
		}
		cancel()
		wg.Wait()
		for _, p := range publishers {
			if err := p.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if _, err := client.Leases(namespace).Get(t.Context(), Name("b"), noOptions()); err == nil {
			t.Error("the lease was not released")
		}
	})
}
