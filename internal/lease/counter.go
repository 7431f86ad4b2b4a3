package lease

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"
)

// Limits of the counter's own LISTs.
const (
	listTimeout    = 10 * time.Second
	listRetryFirst = 2 * time.Second
	listRetryMost  = 30 * time.Second
	// spread keeps a thousand agents from asking in the same moment when a
	// server has died.
	spread = 3 * time.Second
)

// CounterConfig is the configuration of a Counter.
type CounterConfig struct {
	Client    coordinationclient.LeasesGetter
	Namespace string
	// Selector chooses the leases that count, in the syntax of label selectors;
	// it goes into the requests. "" takes all of the namespace.
	Selector string
	// Fallback is the number before the leases could be read; 1 if 0.
	Fallback int
	// Changed is called by Run when the number has become another. May be nil.
	Changed func()
	// Observer may be nil. The zero Logger discards.
	Observer Observer
	Logger   klog.Logger
	// Rand gives numbers from 0 to 1, for jitter, and is safe for concurrent use;
	// math/rand/v2's if nil.
	Rand func() float64
}

// Counter counts servers by their valid leases, which it watches. While the API
// cannot be reached the last good number holds: a lease that runs out unrenewed
// is counted out only after a LIST has shown that it is so.
type Counter struct {
	// Fixed after construction.
	cfg      CounterConfig
	observer Observer
	listing  trouble
	watching trouble
	wake     chan struct{} // something was observed

	// Guarded by mu.
	mu      sync.Mutex
	tracker *tracker
	synced  bool // the tracker holds all leases, as of some time
	value   int
}

// NewCounter returns a counter that says Fallback until Run has read the leases.
func NewCounter(cfg CounterConfig) *Counter {
	if cfg.Fallback == 0 {
		cfg.Fallback = 1
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	return &Counter{
		cfg:      cfg,
		observer: orNop(cfg.Observer),
		listing: trouble{logger: cfg.Logger, fails: "Cannot list server leases; the last good number holds",
			works: "Listing server leases works again"},
		watching: trouble{logger: cfg.Logger, fails: "Cannot watch server leases; they are listed now and then",
			works: "Watching server leases works again"},
		wake:    make(chan struct{}, 1),
		tracker: newTracker(),
		value:   cfg.Fallback,
	}
}

// CountServers returns the number of valid leases, at least 1.
func (c *Counter) CountServers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(1, c.value)
}

// Err is why the leases could not be listed or watched the last time; nil if
// they could.
func (c *Counter) Err() error {
	if err := c.listing.err(); err != nil {
		return err
	}
	return c.watching.err()
}

// Run watches the leases until ctx ends, and returns nil then.
func (c *Counter) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { c.watch(ctx) })
	defer wg.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	timer.Stop()
	var retry time.Duration // how long the timer waits after a LIST that failed; 0 if none did
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
		case <-timer.C:
			retry = c.decide(ctx, retry)
			if retry > 0 {
				timer.Reset(retry)
			}
		}
		next := c.recount()
		switch {
		case retry > 0: // the timer is set
		case next == 0:
			timer.Stop()
		default:
			timer.Reset(next + c.jitter(spread))
		}
	}
}

func (c *Counter) jitter(most time.Duration) time.Duration {
	return time.Duration(c.cfg.Rand() * float64(most))
}

// recount brings the number up to date with what was observed, and tells of a
// change. It returns the time until the next counted lease runs out, at least a
// millisecond; 0 if there is none.
func (c *Counter) recount() (next time.Duration) {
	now := time.Now()
	c.mu.Lock()
	if !c.synced {
		c.mu.Unlock()
		return 0
	}
	n := 0
	for _, s := range c.tracker.seen {
		s.counted = s.counted || s.valid(now)
		if !s.counted {
			continue
		}
		n++
		if left := max(s.expiry(now).Sub(now), time.Millisecond); next == 0 || left < next {
			next = left
		}
	}
	before := c.value
	c.value = n
	c.mu.Unlock()
	if before != n {
		c.cfg.Logger.Info("The number of valid server leases changed", "before", before, "now", n)
		if max(1, before) != max(1, n) && c.cfg.Changed != nil {
			c.cfg.Changed()
		}
	}
	return next
}

// decide lists the leases if one that is counted has run out, so that a watch
// that is late or dead takes nobody out. It returns how long to wait after a
// failure, more each time, or 0.
func (c *Counter) decide(ctx context.Context, failedBefore time.Duration) (retry time.Duration) {
	if !c.expired() {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	list, err := c.list(ctx, metav1.ListOptions{LabelSelector: c.cfg.Selector})
	if err != nil {
		retry = min(max(listRetryFirst, 2*failedBefore), listRetryMost)
		return retry + c.jitter(retry/10)
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tracker.replace(pointers(list), now)
	for _, s := range c.tracker.seen {
		s.counted = s.valid(now)
	}
	return 0
}

// expired reports whether a lease that is counted has run out.
func (c *Counter) expired() bool {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.tracker.seen {
		if s.counted && !s.valid(now) {
			return true
		}
	}
	return false
}

func pointers(list *coordinationv1.LeaseList) []*coordinationv1.Lease {
	all := make([]*coordinationv1.Lease, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	return all
}
