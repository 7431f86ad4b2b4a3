package metrics

import (
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/culvert-proxy/culvert/internal/agent/endpoint"
	"github.com/culvert-proxy/culvert/tunnel/link"
)

// The prefixes of names: the first is given by compatibility.
const (
	prefix    = "konnectivity_network_proxy_agent_"
	ownPrefix = "culvert_agent_"
)

// Metrics are one agent's. Make them with New. Safe for concurrent use.
type Metrics struct {
	// Fixed after construction.
	registry  *prometheus.Registry
	handler   http.Handler
	links     *linkMetrics
	endpoints *endpointMetrics
	leases    *leaseMetrics

	readings atomic.Pointer[Readings]
}

// New returns the metrics of an agent.
func New() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	m.links = newLinkMetrics(m.registry)
	m.endpoints = newEndpointMetrics(m.registry)
	m.leases = newLeaseMetrics(m.registry)
	m.registry.MustRegister(newReadingsCollector(&m.readings, m.endpoints))
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

// Streams observes the streams to servers.
func (m *Metrics) Streams() link.Observer { return m.links }

// Fleet observes attempts to connect to servers.
func (m *Metrics) Fleet() *Fleet { return &Fleet{m.links} }

// Endpoints observes dials and connections to endpoints.
func (m *Metrics) Endpoints() endpoint.Observer { return m.endpoints }

// Leases observes the counting of servers by their leases.
func (m *Metrics) Leases() *Leases { return &Leases{m.leases} }

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

// dialBuckets are in seconds. COMPAT 5.2.
func dialBuckets() []float64 { return []float64{0.005, 0.025, 0.1, 0.5, 2.5, 10, 30} }
