package serverlink

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Directory knows where servers may be: every address behind every configured
// host. Safe for concurrent use.
type Directory struct {
	// Fixed after construction.
	cfg DirectoryConfig

	// Guarded by mu.
	mu    sync.Mutex
	known map[string][]string // the last addresses of each host
}

// DirectoryConfig describes a Directory.
type DirectoryConfig struct {
	Hosts []string // names or IP addresses
	Port  int
	// Lookup resolves a name; nil: net.DefaultResolver.LookupHost.
	Lookup func(ctx context.Context, host string) ([]string, error)
	// Proxied reports whether host:port is reached through a proxy, which then
	// resolves the name. May be nil.
	Proxied func(address string) bool
}

// lookupTimeout bounds the resolving of one name.
const lookupTimeout = 5 * time.Second

// NewDirectory returns a directory that has resolved nothing yet.
func NewDirectory(cfg DirectoryConfig) *Directory {
	if cfg.Lookup == nil {
		cfg.Lookup = net.DefaultResolver.LookupHost
	}
	return &Directory{cfg: cfg, known: make(map[string][]string)}
}

// Targets resolves all hosts and returns what to connect to, in the order of the
// hosts and, within each, sorted, so that it is the same as long as DNS says the
// same. A name that cannot be resolved now has its last addresses. One that never
// had any, or has none according to DNS, is a target itself, whose attempts say
// what is wrong.
func (d *Directory) Targets(ctx context.Context) []Target {
	var all []Target
	for _, host := range d.cfg.Hosts {
		for _, address := range d.addresses(ctx, host) {
			t := Target{Host: host, Address: net.JoinHostPort(address, strconv.Itoa(d.cfg.Port))}
			if !slices.Contains(all, t) {
				all = append(all, t)
			}
		}
	}
	return all
}

// addresses is what host stands for.
func (d *Directory) addresses(ctx context.Context, host string) []string {
	whole := net.JoinHostPort(host, strconv.Itoa(d.cfg.Port))
	if net.ParseIP(host) != nil || d.cfg.Proxied != nil && d.cfg.Proxied(whole) {
		return []string{host}
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := d.cfg.Lookup(ctx, host)
	d.mu.Lock()
	defer d.mu.Unlock()
	var dns *net.DNSError
	switch {
	case err == nil && len(found) > 0:
		found = slices.Clone(found)
		slices.Sort(found)
		d.known[host] = found
	case err == nil || errors.As(err, &dns) && dns.IsNotFound:
		delete(d.known, host)
	}
	if known := d.known[host]; len(known) > 0 {
		return known
	}
	return []string{host}
}

// Proxied reports whether the connector reaches host:port through a proxy. It
// fits DirectoryConfig.
func (c *Connector) Proxied(address string) bool {
	proxy, err := c.proxyFor(address)
	return err == nil && proxy != nil
}
