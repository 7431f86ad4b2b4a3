package metrics

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/culvert-proxy/culvert/internal/agent/endpoint"
)

// Readings are numbers that are read when the metrics are collected. The
// functions must be safe for concurrent use; one that is nil reads as nothing.
type Readings struct {
	// Connections describes the connections that are open, for their bytes.
	Connections func() []endpoint.Info
	// Budget is the flow budget: credit that is out, and its limit, in bytes.
	Budget func() (used, limit int64)
}

// readingsCollector shows the readings.
type readingsCollector struct {
	// Fixed after construction.
	readings            *atomic.Pointer[Readings]
	endpoints           *endpointMetrics
	bytes               *prometheus.Desc
	budget, budgetLimit *prometheus.Desc

	mu sync.Mutex
	// Guarded by mu.
	up, down int64 // what was shown last: a counter does not go back
}

func newReadingsCollector(readings *atomic.Pointer[Readings], endpoints *endpointMetrics) *readingsCollector {
	return &readingsCollector{
		readings:    readings,
		endpoints:   endpoints,
		bytes:       prometheus.NewDesc(ownPrefix+"relayed_bytes_total", "Bytes written to endpoints (up) and read from endpoints (down).", []string{"direction"}, nil),
		budget:      prometheus.NewDesc(ownPrefix+"flow_budget_used_bytes", "Credit that is granted to peers and not used yet, in bytes.", nil, nil),
		budgetLimit: prometheus.NewDesc(ownPrefix+"flow_budget_limit_bytes", "How much credit may be out at once, in bytes.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *readingsCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.bytes
	ch <- c.budget
	ch <- c.budgetLimit
}

// Collect implements prometheus.Collector.
func (c *readingsCollector) Collect(ch chan<- prometheus.Metric) {
	r := c.readings.Load()
	if r == nil {
		r = &Readings{}
	}
	up, down := c.count(r)
	ch <- prometheus.MustNewConstMetric(c.bytes, prometheus.CounterValue, float64(up), "up")
	ch <- prometheus.MustNewConstMetric(c.bytes, prometheus.CounterValue, float64(down), "down")
	var used, limit int64
	if r.Budget != nil {
		used, limit = r.Budget()
	}
	ch <- prometheus.MustNewConstMetric(c.budget, prometheus.GaugeValue, float64(used))
	ch <- prometheus.MustNewConstMetric(c.budgetLimit, prometheus.GaugeValue, float64(limit))
}

// count adds up ended and open connections. One that ends between the two looks
// is missing for once, which must not look like a restart of the process.
func (c *readingsCollector) count(r *Readings) (up, down int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	up, down = c.endpoints.ended()
	if r.Connections != nil {
		for _, info := range r.Connections() {
			up += info.Up
			down += info.Down
		}
	}
	c.up, c.down = max(c.up, up), max(c.down, down)
	return c.up, c.down
}
