package lease

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func noOptions() metav1.GetOptions { return metav1.GetOptions{} }

func theLabels() map[string]string { return map[string]string{"k8s-app": "konnectivity-server"} }

// publishing is a running Publisher in a bubble.
type publishing struct {
	*Publisher
	events *events
	logged *logLines
	stop   func()
}

func runPublisher(t *testing.T, a *api, id string) *publishing {
	p := &publishing{events: &events{}, logged: &logLines{}}
	p.Publisher = NewPublisher(PublisherConfig{Client: a, Namespace: namespace, ServerID: id, Labels: theLabels(),
		Observer: p.events, Logger: funcr.New(p.logged.add, funcr.Options{}), Rand: func() float64 { return 1 }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	stopped := false
	p.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(p.stop)
	synctest.Wait()
	return p
}

// TestPublishedLease is COMPAT 7.5: name, labels, holder, duration, times.
func TestPublishedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		p := runPublisher(t, a, "s1")
		l := a.get("konnectivity-proxy-server-s1")
		if l == nil || l.Namespace != namespace || !maps.Equal(l.Labels, theLabels()) || *l.Spec.HolderIdentity != "s1" ||
			*l.Spec.LeaseDurationSeconds != 30 || !l.Spec.RenewTime.Time.Equal(time.Now()) || l.Spec.AcquireTime != nil || l.OwnerReferences != nil {
			t.Fatalf("lease %+v", l)
		}
		elapse(15600*time.Millisecond - time.Nanosecond)
		synctest.Wait()
		if n := a.count("update"); n != 0 {
			t.Errorf("%d renewals before their time", n)
		}
		elapse(time.Nanosecond)
		synctest.Wait()
		if again := a.get(l.Name); !again.Spec.RenewTime.Time.Equal(time.Now()) || again.UID != l.UID {
			t.Errorf("not renewed: %+v", again.Spec)
		}
		elapse(time.Hour)
		if n := a.count("update"); n < 225 || n > 241 {
			t.Errorf("%d renewals in an hour", n)
		}
		if n := a.count("get"); n != 1 {
			t.Errorf("%d looks without need", n)
		}
		if n := p.logged.take(); n != 1 {
			t.Errorf("%d log lines in an hour without event", n)
		}
		p.stop()
		if err := p.Release(t.Context()); err != nil || a.get(l.Name) != nil {
			t.Errorf("released: %v, %v", err, a.get(l.Name))
		}
	})
}

func TestPublisherTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		old := server("s1", time.Now().Add(-time.Hour))
		old.Labels = map[string]string{"other": "label"}
		old.Annotations = map[string]string{"kept": "yes"}
		old.Spec.AcquireTime = old.Spec.RenewTime
		uid := a.set(old).UID
		runPublisher(t, a, "s1")
		l := a.get(Name("s1"))
		if l.UID != uid || !maps.Equal(l.Labels, theLabels()) || l.Annotations["kept"] != "yes" || !l.Spec.RenewTime.Time.Equal(time.Now()) || l.Spec.AcquireTime != nil {
			t.Errorf("lease %+v", l)
		}
		a.set(server("s1", time.Now())) // somebody wrote: a conflict at the next renewal
		elapse(16 * time.Second)
		if l := a.get(Name("s1")); !time.Now().Before(l.Spec.RenewTime.Time.Add(time.Second)) {
			t.Errorf("after a conflict: renewed %v ago", time.Since(l.Spec.RenewTime.Time))
		}
		a.remove(Name("s1"))
		elapse(16 * time.Second)
		if a.get(Name("s1")) == nil {
			t.Error("a lease that was deleted was not made again")
		}
	})
}

func TestPublisherBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		a.down(errors.New("connection refused"))
		p := runPublisher(t, a, "s1")
		// At 0, 0.2, 0.6, 1.4, 3, 6.2, 12.6, and then every 7 s.
		elapse(12500 * time.Millisecond)
		synctest.Wait()
		if n := a.count("get"); n != 6 {
			t.Errorf("%d tries, want 6", n)
		}
		elapse(70 * time.Second)
		synctest.Wait()
		if n := a.count("get"); n != 10 {
			t.Errorf("%d tries in 70 s, want 10", n)
		}
		if n := p.logged.take(); n != 1 || p.Err() == nil {
			t.Errorf("%d lines, error %v", n, p.Err())
		}
		a.down(nil)
		elapse(7 * time.Second)
		if a.get(Name("s1")) == nil || p.Err() != nil {
			t.Error("not published when the API was back")
		}
		if got := p.events.take(); !slices.Equal(got, []string{"published <nil>", "published connection refused"}) {
			t.Errorf("events %q", got)
		}
	})
}

// TestReleaseLeavesASuccessorAlone: a process with the same server ID has taken
// the lease over while we were stopping.
func TestReleaseLeavesASuccessorAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		first := runPublisher(t, a, "s1")
		elapse(time.Second)
		second := runPublisher(t, a, "s1")
		first.stop()
		if err := first.Release(t.Context()); err != nil || a.get(Name("s1")) == nil {
			t.Errorf("the successor's lease was deleted; %v", err)
		}
		second.stop()
		if err := second.Release(t.Context()); err != nil || a.get(Name("s1")) != nil {
			t.Errorf("the own lease stayed; %v", err)
		}
	})
}

// TestReleaseAfterALostAnswer: the write had its effect, but we were not told.
func TestReleaseAfterALostAnswer(t *testing.T) {
	for _, verb := range []string{"create", "update"} {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI()
			if verb == "update" {
				a.set(server("s1", time.Now().Add(-time.Hour)))
			}
			a.lost[verb] = errors.New("timeout")
			p := runPublisher(t, a, "s1")
			p.stop()
			if a.get(Name("s1")) == nil {
				t.Fatal("the test lost the write itself")
			}
			if err := p.Release(t.Context()); err != nil || a.get(Name("s1")) != nil {
				t.Errorf("%s: not released; %v", verb, err)
			}
		})
	}
}

func TestReleaseTriesUntilItsTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		p := runPublisher(t, a, "s1")
		p.stop()
		a.down(errors.New("connection refused"))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		start := time.Now()
		if err := p.Release(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		a.down(nil)
		if err := p.Release(t.Context()); err != nil || a.get(Name("s1")) != nil {
			t.Errorf("not released; %v", err)
		}
		if err := p.Release(t.Context()); err != nil {
			t.Errorf("a second release: %v", err)
		}
	})
}

// collecting is a running Collector in a bubble.
type collecting struct {
	*Collector
	events  *events
	logged  *logLines
	changes atomic.Int64
}

func runCollector(t *testing.T, a *api, id string) *collecting {
	c := &collecting{events: &events{}, logged: &logLines{}}
	c.Collector = NewCollector(CollectorConfig{Client: a, Namespace: namespace, Labels: theLabels(), ServerID: id, Changed: func() { c.changes.Add(1) },
		Observer: c.events, Logger: funcr.New(c.logged.add, funcr.Options{}), Rand: func() float64 { return 0 }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return c
}

func TestCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		old := time.Now().Add(-time.Hour)
		a.set(server("own", old))
		a.set(server("live", time.Now()))
		a.set(server("dead", old))
		a.set(server("behind", old)) // alive, with a clock that is an hour behind
		foreign := server("foreign", old)
		foreign.Labels = map[string]string{"k8s-app": "something-else"}
		a.set(foreign)
		odd := server("odd", old)
		odd.Spec.LeaseDurationSeconds = nil
		a.set(odd)
		c := runCollector(t, a, "own")
		if c.CountServers() != 1 || c.changes.Load() != 0 {
			t.Errorf("count %d, %d changes", c.CountServers(), c.changes.Load())
		}
		if a.selector[0] != "k8s-app=konnectivity-server" {
			t.Errorf("selector %q", a.selector[0])
		}
		for range 2 {
			elapse(14 * time.Second)
			a.set(server("live", time.Now()))
			a.set(server("behind", time.Now().Add(-time.Hour)))
			elapse(time.Second)
			synctest.Wait()
		}
		if c.CountServers() != 2 || c.changes.Load() != 1 {
			t.Errorf("count %d, %d changes: the one that renews counts", c.CountServers(), c.changes.Load())
		}
		for id, there := range map[string]bool{"own": true, "live": true, "behind": true, "foreign": true, "dead": false, "odd": false} {
			if (a.get(Name(id)) != nil) != there {
				t.Errorf("%s is there: %v", id, !there)
			}
		}
		if n := a.count("delete"); n != 2 {
			t.Errorf("%d deletions", n)
		}
		if got := c.events.take(); !slices.Equal(got, []string{"delete 200 ", "list 200 "}) {
			t.Errorf("events %q", got)
		}
	})
}

// TestCollectorDoesNotDeleteEarly: a dead lease is watched for its duration
// before it goes.
func TestCollectorDoesNotDeleteEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		a.set(server("dead", time.Now().Add(-time.Hour)))
		runCollector(t, a, "own")
		elapse(29 * time.Second)
		if a.get(Name("dead")) == nil {
			t.Error("deleted without having been watched")
		}
		elapse(2 * time.Second)
		if a.get(Name("dead")) != nil {
			t.Error("not deleted")
		}
	})
}

func TestCollectorFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		a.set(server("a", time.Now()))
		a.set(server("b", time.Now()))
		c := runCollector(t, a, "own")
		if c.CountServers() != 2 || c.changes.Load() != 1 {
			t.Errorf("count %d, %d changes", c.CountServers(), c.changes.Load())
		}
		c.events.take()
		c.logged.take()
		a.down(errors.New("connection refused"))
		elapse(time.Hour)
		if c.CountServers() != 2 || c.Err() == nil || c.logged.take() != 1 {
			t.Errorf("count %d, error %v: the last good number holds, and is said once", c.CountServers(), c.Err())
		}
		if got := c.events.take(); !slices.Equal(got, []string{"failed lease", "list 0 "}) {
			t.Errorf("events %q", got)
		}
		a.down(nil)
		a.mu.Lock()
		a.fail["delete"] = forbidden()
		a.mu.Unlock()
		elapse(time.Hour)
		if c.CountServers() != 1 || c.Err() == nil {
			t.Errorf("count %d, error %v", c.CountServers(), c.Err())
		}
		if n := c.logged.take(); n != 3 { // works again, another number, cannot delete
			t.Errorf("%d lines", n)
		}
		a.down(nil)
		elapse(time.Minute)
		if c.Err() != nil || a.get(Name("a")) != nil {
			t.Errorf("not deleted: %v", c.Err())
		}
	})
}
