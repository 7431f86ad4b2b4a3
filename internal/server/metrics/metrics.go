package metrics

import (
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/culvert-proxy/culvert/internal/server/agentlink"
	"github.com/culvert-proxy/culvert/internal/server/frontconnect"
	"github.com/culvert-proxy/culvert/internal/server/frontgrpc"
	"github.com/culvert-proxy/culvert/internal/server/relay"
	"github.com/culvert-proxy/culvert/internal/streammetrics"
)

// The prefixes of names: the first is given by compatibility.
const (
	prefix    = "konnectivity_network_proxy_server_"
	ownPrefix = "culvert_server_"
)

// Metrics are one server's. Make them with New. Safe for concurrent use.
type Metrics struct {
	// Fixed after construction.
	registry *prometheus.Registry
	handler  http.Handler
	streams  *streammetrics.Streams
	tunnels  *tunnelMetrics
	entries  *entryMetrics
	leases   *leaseMetrics

	readings atomic.Pointer[Readings]
}

// New returns the metrics of a server whose backend managers have these names, in
// order.
func New(strategies []string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newReadingsCollector(strategies, &m.readings),
	)
	m.streams = streammetrics.New(m.registry, prefix)
	m.tunnels = newTunnelMetrics(m.registry)
	m.entries = newEntryMetrics(m.registry, m.streams)
	m.leases = newLeaseMetrics(m.registry)
	m.handler = promhttp.InstrumentMetricHandler(m.registry,
		promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	return m
}

// Handler serves the metrics as text.
func (m *Metrics) Handler() http.Handler { return m.handler }

// Gatherer gives the metrics to tests and to other exporters.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// Watch sets where the numbers come from that are read when they are asked for.
func (m *Metrics) Watch(r Readings) { m.readings.Store(&r) }

// Relay observes tunnels and dials.
func (m *Metrics) Relay() relay.Observer { return m.tunnels }

// Agents observes agent links.
func (m *Metrics) Agents() agentlink.Observer { return agents{m.entries.fromAgents, m.entries} }

// Clients observes the gRPC frontend.
func (m *Metrics) Clients() frontgrpc.Observer { return clients{m.entries.fromClients, m.entries} }

// Connect observes the HTTP CONNECT frontend.
func (m *Metrics) Connect() frontconnect.Observer { return connects{m.entries} }

// Leases observes the lease controller.
func (m *Metrics) Leases() *Leases { return &Leases{m.leases} }

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

func gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}

// latencyBuckets and durationBuckets are COMPAT's S1 and S2, in seconds.
func latencyBuckets() []float64 {
	return []float64{1e-06, 1e-05, 0.0001, 0.005, 0.025, 0.1, 0.5, 2.5, 12.5}
}

func durationBuckets() []float64 {
	return []float64{1, 5, 15, 30, 60, 300, 900, 1800, 3600, 14400, 43200, 86400}
}
