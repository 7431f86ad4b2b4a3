package lease

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"
)

// CollectorConfig is the configuration of a Collector.
type CollectorConfig struct {
	Client    coordinationclient.LeasesGetter
	Namespace string
	// Labels that a lease must carry to be counted and, once it is abandoned,
	// to be deleted. Not empty.
	Labels map[string]string
	// ServerID names the one lease that is never deleted: our own.
	ServerID string
	// Period of the LISTs, 15 s if 0, with up to 4 % more.
	Period time.Duration
	// Fallback is the number before the leases could be read; 1 if 0.
	Fallback int
	// Changed is called by Run when the number has become another. May be nil.
	Changed func()
	// Observer may be nil. The zero Logger discards.
	Observer Observer
	Logger   klog.Logger
	// Rand gives numbers from 0 to 1, for jitter; math/rand/v2's if nil.
	Rand func() float64
}

// Collector lists the servers' leases now and then, deletes those that dead
// servers left, and counts the valid ones.
type Collector struct {
	// Fixed after construction.
	cfg      CollectorConfig
	observer Observer
	listing  trouble
	deleting trouble

	value atomic.Int64

	// Owned by Run.
	tracker *tracker
}

// NewCollector returns a collector that counts Fallback until Run has listed.
func NewCollector(cfg CollectorConfig) *Collector {
	if cfg.Period == 0 {
		cfg.Period = 15 * time.Second
	}
	if cfg.Fallback == 0 {
		cfg.Fallback = 1
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	c := &Collector{cfg: cfg, observer: orNop(cfg.Observer), tracker: newTracker(),
		listing: trouble{logger: cfg.Logger, fails: "Cannot list server leases; the last good number holds",
			works: "Listing server leases works again"},
		deleting: trouble{logger: cfg.Logger, fails: "Cannot delete an abandoned server lease",
			works: "Deleting abandoned server leases works again"},
	}
	c.value.Store(int64(cfg.Fallback))
	return c
}

// CountServers returns the number of valid leases as of the last LIST that
// succeeded, at least 1.
func (c *Collector) CountServers() int { return int(max(1, c.value.Load())) }

// Err is why the leases could not be listed or deleted the last time; nil if
// they could.
func (c *Collector) Err() error {
	if err := c.listing.err(); err != nil {
		return err
	}
	return c.deleting.err()
}

// Run lists and deletes until ctx ends, and returns nil then.
func (c *Collector) Run(ctx context.Context) error {
	for {
		c.collect(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Duration(float64(c.cfg.Period) * (1 + renewalJitter*c.cfg.Rand()))):
		}
	}
}

func (c *Collector) collect(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	start := time.Now()
	list, err := c.cfg.Client.Leases(c.cfg.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.Set(c.cfg.Labels).String()})
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	code, reason := outcome(err)
	c.observer.Listed(code, reason, time.Since(start))
	c.listing.note(err)
	if err != nil {
		c.observer.CountingFailed("lease", err)
		return
	}
	now := time.Now()
	c.tracker.replace(pointers(list), now)
	n := 0
	for _, s := range c.tracker.seen {
		if s.valid(now) {
			n++
		}
	}
	if before := int(c.value.Swap(int64(n))); before != n {
		c.cfg.Logger.Info("The number of valid server leases changed", "before", before, "now", n)
		if max(1, before) != max(1, n) && c.cfg.Changed != nil {
			c.cfg.Changed()
		}
	}
	c.cull(ctx, now)
}

// cull deletes what was abandoned. That somebody else was faster, or that the
// lease was renewed after all, is no failure.
func (c *Collector) cull(ctx context.Context, now time.Time) {
	var failure error
	for _, name := range slices.SortedFunc(maps.Keys(c.tracker.seen), strings.Compare) {
		s := c.tracker.seen[name]
		if name == Name(c.cfg.ServerID) || !s.abandoned(now) {
			continue
		}
		start := time.Now()
		err := c.cfg.Client.Leases(c.cfg.Namespace).Delete(ctx, name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.uid, ResourceVersion: &s.version}})
		code, reason := outcome(err)
		c.observer.Deleted(code, reason, time.Since(start))
		switch {
		case err == nil:
			c.tracker.forget(name)
			c.cfg.Logger.Info("Deleted an abandoned server lease", "lease", name, "namespace", c.cfg.Namespace, "renewed", s.renewed)
		case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		case ctx.Err() != nil:
			return
		default:
			failure = err
		}
	}
	c.deleting.note(failure)
}
