package rig

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"

	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
)

// tick is how exactly a cluster looks at what happens while time passes, as a rule.
const tick = 100 * time.Millisecond

// Cluster is servers, agents, endpoints and clients on one network in memory. It
// lives in one synctest bubble. Its methods are for the goroutine that made it.
type Cluster struct {
	// Fixed after construction.
	net     *tunneltest.Network
	log     klog.Logger
	began   time.Time
	journal *journal
	dials   sync.WaitGroup // of clients
	running sync.WaitGroup // processes

	servers   map[string]*serverProcess
	agents    map[string]*agentProcess
	endpoints map[string]*endpoint
	facts     []fact // as they were when they were looked at last

	mu sync.Mutex
	// Guarded by mu: endpoints accept on goroutines of their own.
	ends map[string]*End
}

// NewCluster returns a cluster of nobody. It must be closed.
func NewCluster(log klog.Logger) *Cluster {
	return &Cluster{
		net:       tunneltest.NewNetwork(0),
		log:       log,
		began:     time.Now(),
		journal:   &journal{},
		servers:   map[string]*serverProcess{},
		agents:    map[string]*agentProcess{},
		endpoints: map[string]*endpoint{},
		ends:      map[string]*End{},
	}
}

// Network is what everybody is connected with. See faults.go for the names.
func (c *Cluster) Network() *tunneltest.Network { return c.net }

// Settle waits until everybody waits, without any time passing, and returns what
// has happened.
func (c *Cluster) Settle() []string { return c.settle(tick) }

func (c *Cluster) settle(step time.Duration) []string {
	synctest.Wait()
	stamp := formatStamp(time.Since(c.began).Truncate(step))
	var lines []string
	for _, e := range c.journal.take() {
		lines = append(lines, stamp+"  "+e.String())
	}
	for _, e := range c.news() {
		lines = append(lines, stamp+"  "+e.String())
	}
	return lines
}

// Wait lets time pass and returns what happens meanwhile, stamped to a step; a
// step of 0 is a tenth of a second, or a second in a wait of many minutes.
//
// It looks once per step, in the middle between two full ones: what happens at a
// full one, as timers do, has happened long before and has that stamp.
func (c *Cluster) Wait(d, step time.Duration) []string {
	switch {
	case step > 0:
	case d > 10*time.Minute:
		step = time.Second
	default:
		step = tick
	}
	var lines []string
	for end := time.Since(c.began) + d; ; {
		now := time.Since(c.began)
		next := (now + step/2).Truncate(step) + step/2
		if next >= end {
			<-time.After(end - now)
			return append(lines, c.settle(step)...)
		}
		<-time.After(next - now)
		lines = append(lines, c.settle(step)...)
	}
}

// End returns a client, or a connection of an endpoint, "ADDRESS#1" being the
// first that it accepted.
func (c *Cluster) End(name string) (*End, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.ends[name]
	if e == nil {
		return nil, fmt.Errorf("there is no client and no connection %s", name)
	}
	return e, nil
}

// free reports whether a name can be given to somebody.
func (c *Cluster) free(name string) error {
	_, server := c.servers[name]
	_, agent := c.agents[name]
	_, endpoint := c.endpoints[name]
	if server || agent || endpoint {
		return fmt.Errorf("the name %s is taken", name)
	}
	if e, err := c.End(name); err == nil {
		select {
		case <-e.over:
		default:
			return fmt.Errorf("%s is not over", name)
		}
	}
	return nil
}

// Nothing is an error that lists what is left: tunnels, pending dials,
// connections.
func (c *Cluster) Nothing() error {
	synctest.Wait()
	var left []error
	for _, f := range c.look() {
		if f.must0 && f.value != "0" {
			left = append(left, fmt.Errorf("left: %s %s", f.what, f.value))
		}
	}
	for _, name := range c.endNames() {
		if e, _ := c.End(name); !e.isOver() {
			left = append(left, fmt.Errorf("left: %s is %s", name, e))
		}
	}
	return errors.Join(left...)
}

func (e *End) isOver() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

func (c *Cluster) endNames() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := make([]string, 0, len(c.ends))
	for name := range c.ends {
		names = append(names, name)
	}
	slices.SortFunc(names, strings.Compare)
	return names
}

// Close ends everybody and waits for it. The error is what must never happen but
// did, and connections that nobody has closed; goroutines that are left are the
// bubble's to report.
func (c *Cluster) Close() error {
	for _, name := range c.endNames() {
		e, _ := c.End(name)
		e.Abort()
	}
	for _, a := range c.agents {
		a.kill()
	}
	for _, s := range c.servers {
		s.kill()
	}
	for _, p := range c.endpoints {
		_ = p.listener.Close()
	}
	c.running.Wait()
	c.dials.Wait()
	synctest.Wait()
	var errs []error
	if n := c.net.Open(); n > 0 {
		errs = append(errs, fmt.Errorf("%d connections are left", n))
	}
	for _, fault := range c.journal.allFaults() {
		errs = append(errs, errors.New(fault))
	}
	return errors.Join(errs...)
}
