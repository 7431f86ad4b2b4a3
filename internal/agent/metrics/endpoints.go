package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/culvert-proxy/culvert/internal/agent/endpoint"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// endpointMetrics implements endpoint.Observer.
type endpointMetrics struct {
	// Fixed after construction.
	dialDuration     prometheus.Histogram
	timeout, unknown prometheus.Counter // endpoint_dial_failure_total
	open             prometheus.Gauge
	failed           *prometheus.CounterVec
	closed           *prometheus.CounterVec
	duration         prometheus.Histogram
	blocked          prometheus.Gauge

	mu sync.Mutex
	// Guarded by mu.
	up, down int64 // bytes of connections that have ended
}

var _ endpoint.Observer = (*endpointMetrics)(nil)

func newEndpointMetrics(reg prometheus.Registerer) *endpointMetrics {
	failures := counters(prefix+"endpoint_dial_failure_total", "Dials of endpoints that failed, by reason: timeout, or unknown for all else.", "reason")
	e := &endpointMetrics{
		dialDuration: prometheus.NewHistogram(prometheus.HistogramOpts{Name: prefix + "dial_duration_seconds",
			Help: "Time of dials of endpoints that succeeded, in seconds.", Buckets: dialBuckets()}),
		timeout: failures.WithLabelValues("timeout"),
		unknown: failures.WithLabelValues("unknown"),
		open:    gauge(prefix+"open_endpoint_connections", "Connections to endpoints that are open."),
		failed:  counters(ownPrefix+"dial_failures_total", "Dials of endpoints that failed, by exact reason.", "reason"),
		closed:  counters(ownPrefix+"connections_closed_total", "Connections to endpoints that ended, by reason; none is an orderly end.", "reason"),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{Name: ownPrefix + "connection_duration_seconds",
			Help: "Life of connections to endpoints, in seconds.", Buckets: durationBuckets()}),
		blocked: gauge(ownPrefix+"blocked_readers", "Readers of links that wait for room in a connection's queue now."),
	}
	for _, r := range wire.Reasons() {
		if dialReason(r) {
			e.failed.WithLabelValues(r.String())
		}
		if endReason(r) {
			e.closed.WithLabelValues(r.String())
		}
	}
	reg.MustRegister(e.dialDuration, failures, e.open, e.failed, e.closed, e.duration, e.blocked)
	return e
}

// DialSucceeded implements endpoint.Observer.
func (e *endpointMetrics) DialSucceeded(d endpoint.Dial) { e.dialDuration.Observe(d.Took.Seconds()) }

// DialFailed implements endpoint.Observer. A dial that the server took back is no
// fault of the endpoint, so the old metric leaves it out.
func (e *endpointMetrics) DialFailed(d endpoint.Dial, err *wire.DialError) {
	e.failed.WithLabelValues(err.Reason.String()).Inc()
	switch {
	case err.Reason == wire.ReasonCanceled:
	case d.Timeout:
		e.timeout.Inc()
	default:
		e.unknown.Inc()
	}
}

// Opened implements endpoint.Observer.
func (e *endpointMetrics) Opened(endpoint.Info) { e.open.Inc() }

// Closed implements endpoint.Observer.
func (e *endpointMetrics) Closed(c endpoint.Info, end endpoint.End) {
	e.open.Dec()
	e.closed.WithLabelValues(end.Reason.String()).Inc()
	e.duration.Observe(time.Since(c.Since).Seconds())
	e.mu.Lock()
	defer e.mu.Unlock()
	e.up += c.Up
	e.down += c.Down
}

// ReaderBlocked implements endpoint.Observer.
func (e *endpointMetrics) ReaderBlocked(delta int) { e.blocked.Add(float64(delta)) }

// ended is the bytes of connections that have ended.
func (e *endpointMetrics) ended() (up, down int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.up, e.down
}

// dialReason reports whether an agent's dial may fail for r.
func dialReason(r wire.Reason) bool {
	switch r {
	case wire.ReasonNone, wire.ReasonNoAgent, wire.ReasonBackendTimeout, wire.ReasonBackendLost:
		return false
	}
	return r < wire.ReasonClientTimeout
}

// endReason reports whether an agent's connection may end for r.
func endReason(r wire.Reason) bool {
	switch r {
	case wire.ReasonNone, wire.ReasonOther, wire.ReasonCanceled, wire.ReasonShutdown:
		return true
	}
	return r >= wire.ReasonReset
}

// durationBuckets are in seconds, as the server's for connections.
func durationBuckets() []float64 {
	return []float64{1, 5, 15, 30, 60, 300, 900, 1800, 3600, 14400, 43200, 86400}
}
