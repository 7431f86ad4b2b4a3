package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// How long the watch waits before it lists again after it has ended; twice as
// long each time, and up to twice that by chance, so that a thousand agents do
// not fall upon an API server that has come back.
const (
	relistFirst = time.Second
	relistMost  = 15 * time.Second
	watchLasted = 2 * time.Minute // a watch that held for so long starts over with relistFirst
)

// watch keeps the tracker up to date until ctx ends: the heart of an informer,
// with the tracker for its store.
func (c *Counter) watch(ctx context.Context) {
	source := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = c.cfg.Selector
			list, err := c.list(ctx, options)
			if err != nil {
				return nil, err // not a typed nil
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = c.cfg.Selector
			return c.openWatch(ctx, options)
		},
	}, c.cfg.Client)
	// What fails is said once for each change, in list and openWatch; the
	// reflector would say it every time, and its own loop would hold it back
	// behind a limit that the whole process shares.
	quiet := logr.Discard()
	reflector := cache.NewReflectorWithOptions(source, &coordinationv1.Lease{}, store{c}, cache.ReflectorOptions{Name: "server leases", Logger: &quiet})
	ctx = klog.NewContext(ctx, quiet)
	wait := relistFirst
	for {
		start := time.Now()
		_ = reflector.ListAndWatchWithContext(ctx) // noted where it happened
		if time.Since(start) > watchLasted {
			wait = relistFirst
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait + c.jitter(wait)):
			wait = min(2*wait, relistMost)
		}
	}
}

func (c *Counter) list(ctx context.Context, options metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	start := time.Now()
	list, err := c.cfg.Client.Leases(c.cfg.Namespace).List(ctx, options)
	code, reason := outcome(err)
	c.observer.Listed(code, reason, time.Since(start))
	return list, c.note(&c.listing, err)
}

func (c *Counter) openWatch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w, err := c.cfg.Client.Leases(c.cfg.Namespace).Watch(ctx, options)
	c.observer.Watched(outcome(err))
	return w, c.note(&c.watching, err)
}

// note reports err and returns it. That Run is ending is no failure.
func (c *Counter) note(t *trouble, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	if err != nil {
		c.observer.CountingFailed("lease", err)
	}
	t.note(err)
	return err
}

// store lets a reflector write into the counter's tracker.
type store struct{ c *Counter }

func (s store) Add(obj any) error { return s.Update(obj) }

func (s store) Update(obj any) error {
	return s.with(func(now time.Time) error {
		l, ok := obj.(*coordinationv1.Lease)
		if !ok {
			return fmt.Errorf("a %T is no lease", obj)
		}
		s.c.tracker.observe(l, now)
		return nil
	})
}

func (s store) Delete(obj any) error {
	return s.with(func(time.Time) error {
		l, ok := obj.(*coordinationv1.Lease)
		if !ok {
			return fmt.Errorf("a %T is no lease", obj)
		}
		s.c.tracker.forget(l.Name)
		return nil
	})
}

func (s store) Replace(objects []any, _ string) error {
	return s.with(func(now time.Time) error {
		leases := make([]*coordinationv1.Lease, 0, len(objects))
		for _, obj := range objects {
			l, ok := obj.(*coordinationv1.Lease)
			if !ok {
				return fmt.Errorf("a %T is no lease", obj)
			}
			leases = append(leases, l)
		}
		s.c.tracker.replace(leases, now)
		s.c.synced = true
		return nil
	})
}

func (store) Resync() error { return nil }

// with calls f under the lock and wakes Run.
func (s store) with(f func(now time.Time) error) error {
	s.c.mu.Lock()
	err := f(time.Now())
	s.c.mu.Unlock()
	select {
	case s.c.wake <- struct{}{}:
	default: // it is awake, and sees this too
	}
	return err
}
