package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// byteSource is what the counter needs of *relay.Tunnel.
type byteSource interface {
	Bytes() (up, down int64)
}

// byteCounter sums the bytes of all tunnels. A long tunnel's are counted while it
// lives, by asking it when the metric is collected.
type byteCounter struct {
	// Fixed after construction.
	desc *prometheus.Desc

	mu sync.Mutex
	// Guarded by mu.
	live     map[byteSource]struct{}
	up, down int64 // of tunnels that have ended
}

func newByteCounter() *byteCounter {
	return &byteCounter{
		desc: prometheus.NewDesc(ownPrefix+"relayed_bytes_total",
			"Bytes taken from clients (up) and given to clients (down).", []string{"direction"}, nil),
		live: map[byteSource]struct{}{},
	}
}

func (b *byteCounter) add(t byteSource) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.live[t] = struct{}{}
}

// remove adds a tunnel that has ended to the sum; its bytes change no more.
func (b *byteCounter) remove(t byteSource) {
	up, down := t.Bytes()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.live, t)
	b.up += up
	b.down += down
}

// Describe implements prometheus.Collector.
func (b *byteCounter) Describe(ch chan<- *prometheus.Desc) { ch <- b.desc }

// Collect implements prometheus.Collector. The tunnels are asked without the
// lock: one that ends meanwhile still knows its bytes, and is not in the sum.
func (b *byteCounter) Collect(ch chan<- prometheus.Metric) {
	b.mu.Lock()
	up, down := b.up, b.down
	live := make([]byteSource, 0, len(b.live))
	for t := range b.live {
		live = append(live, t)
	}
	b.mu.Unlock()
	for _, t := range live {
		u, d := t.Bytes()
		up += u
		down += d
	}
	ch <- prometheus.MustNewConstMetric(b.desc, prometheus.CounterValue, float64(up), "up")
	ch <- prometheus.MustNewConstMetric(b.desc, prometheus.CounterValue, float64(down), "down")
}
