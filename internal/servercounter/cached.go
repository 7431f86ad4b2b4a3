package servercounter

import (
	"sync"
	"time"
)

// CachedConfig is the configuration of a Cached counter.
type CachedConfig struct {
	// Expiry is how long a value is taken as it is. With 0, every call starts a
	// refresh unless one is running.
	Expiry time.Duration
	// Changed is called after a refresh that brought another number, from a
	// goroutine of its own; it must not call Close. May be nil.
	Changed func()
}

// Cached makes a slow counter cheap. After the expiry a call still returns the
// value at hand at once and starts a refresh, of which there is never more than
// one. Only calls before the first value wait for it.
type Cached struct {
	// Fixed after construction.
	of  ServerCounter
	cfg CachedConfig

	wg sync.WaitGroup // the running refresh

	// Guarded by mu.
	mu         sync.Mutex
	value      int
	until      time.Time
	first      chan struct{} // closed when there is a value; nil before the first call
	have       bool
	refreshing bool
	closed     bool
}

// NewCached returns a cache of counter. Close it when it is no longer used.
func NewCached(counter ServerCounter, cfg CachedConfig) *Cached {
	return &Cached{of: counter, cfg: cfg}
}

// CountServers returns the cached number.
func (c *Cached) CountServers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.have && c.first == nil:
		c.first = make(chan struct{})
		c.mu.Unlock()
		value := c.of.CountServers()
		c.mu.Lock()
		c.value, c.until, c.have = value, time.Now().Add(c.cfg.Expiry), true
		close(c.first)
	case !c.have:
		c.mu.Unlock()
		<-c.first
		c.mu.Lock()
	case !c.refreshing && !c.closed && !time.Now().Before(c.until):
		c.refreshing = true
		c.wg.Go(c.refresh)
	}
	return c.value
}

func (c *Cached) refresh() {
	value := c.of.CountServers()
	c.mu.Lock()
	changed := value != c.value
	c.value, c.until, c.refreshing = value, time.Now().Add(c.cfg.Expiry), false
	c.mu.Unlock()
	if changed && c.cfg.Changed != nil {
		c.cfg.Changed()
	}
}

// Close waits for a running refresh. Later calls of CountServers return the last
// value.
func (c *Cached) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.wg.Wait()
}
