package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/culvert-proxy/culvert/internal/server/relay"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Values of dial_failure_count's label. The last two are Culvert's.
const (
	failNoAgent      = "no_agent"
	failResponse     = "error_response"
	failUnrecognized = "unrecognized_response"
	failSendResponse = "send_rsp"
	failBackendClose = "backend_close"
	failTimeout      = "backend_dial_timeout"
	failFrontend     = "frontend_close"
	failLimit        = "limit"
	failShutdown     = "shutdown"
)

// tunnelMetrics implements relay.Observer.
type tunnelMetrics struct {
	// Fixed after construction.
	dialDuration  prometheus.Histogram
	frontendWrite prometheus.Histogram
	duration      prometheus.Histogram
	pending       prometheus.Gauge
	established   prometheus.Gauge
	blocked       prometheus.Gauge
	failures      *prometheus.CounterVec
	unrecognized  prometheus.Counter // one of failures

	attempts *prometheus.CounterVec
	retries  prometheus.Counter
	failed   *prometheus.CounterVec
	closed   *prometheus.CounterVec
	bytes    *byteCounter
}

var _ relay.Observer = (*tunnelMetrics)(nil)

func newTunnelMetrics(reg prometheus.Registerer) *tunnelMetrics {
	full := gauges(prefix+"full_receive_channels", "Readers of streams that wait for room in a queue now.", "service_method")
	t := &tunnelMetrics{
		dialDuration:  histogram(prefix+"dial_duration_seconds", "Time from a client's dial to the agent's success, in seconds.", latencyBuckets()),
		frontendWrite: histogram(prefix+"frontend_write_duration_seconds", "Time of one write to a client, in seconds.", latencyBuckets()),
		duration:      histogram(prefix+"connection_duration_seconds", "Life of established connections, in seconds.", durationBuckets()),
		pending:       gauge(prefix+"pending_backend_dials", "Dials that wait for an answer."),
		established:   gauge(prefix+"established_connections", "Connections that are established."),
		blocked:       full.WithLabelValues(methodConnect),
		failures:      counters(prefix+"dial_failure_count", "Dials that failed, by reason.", "reason"),
		attempts:      counters(ownPrefix+"dial_attempt_failures_total", "Attempts on one agent that failed, by reason; a dial may go on with another.", "reason"),
		retries:       counter(ownPrefix+"dial_retries_total", "Failed attempts after which another agent was tried."),
		failed:        counters(ownPrefix+"dial_failures_total", "Dials that failed, by frontend and exact reason.", "frontend", "reason"),
		closed:        counters(ownPrefix+"tunnels_closed_total", "Tunnels that ended, by reason; none is an orderly end.", "reason"),
		bytes:         newByteCounter(),
	}
	full.WithLabelValues(methodProxy)
	for _, r := range []string{failNoAgent, failResponse, failSendResponse, failBackendClose, failTimeout, failFrontend, failLimit, failShutdown} {
		t.failures.WithLabelValues(r)
	}
	t.unrecognized = t.failures.WithLabelValues(failUnrecognized)
	for _, r := range wire.Reasons() {
		if dialReason(r) {
			t.attempts.WithLabelValues(r.String())
			t.failed.WithLabelValues("grpc", r.String())
			t.failed.WithLabelValues("http-connect", r.String())
		}
		if endReason(r) {
			t.closed.WithLabelValues(r.String())
		}
	}
	reg.MustRegister(t.dialDuration, t.frontendWrite, t.duration, t.pending, t.established, full,
		t.failures, t.attempts, t.retries, t.failed, t.closed, t.bytes)
	return t
}

// DialPending implements relay.Observer.
func (t *tunnelMetrics) DialPending(delta int) { t.pending.Add(float64(delta)) }

// DialAttempt implements relay.Observer.
func (t *tunnelMetrics) DialAttempt(f relay.AttemptFailure) {
	t.attempts.WithLabelValues(f.Err.Reason.String()).Inc()
	if !f.Final {
		t.retries.Inc()
	}
}

// DialFailed implements relay.Observer.
func (t *tunnelMetrics) DialFailed(req relay.Request, err *wire.DialError) {
	t.failures.WithLabelValues(failureLabel(err.Reason)).Inc()
	t.failed.WithLabelValues(req.Frontend, err.Reason.String()).Inc()
}

// AnswerLost implements relay.Observer. COMPAT 5.1: a success could not be
// passed on to the client.
func (t *tunnelMetrics) AnswerLost(*relay.Tunnel) {
	t.failures.WithLabelValues(failSendResponse).Inc()
}

// TunnelOpened implements relay.Observer.
func (t *tunnelMetrics) TunnelOpened(tun *relay.Tunnel) {
	t.dialDuration.Observe(tun.DialDuration().Seconds())
	t.established.Inc()
	t.bytes.add(tun)
}

// TunnelClosed implements relay.Observer.
func (t *tunnelMetrics) TunnelClosed(tun *relay.Tunnel, end relay.End) {
	t.established.Dec()
	t.duration.Observe(time.Since(tun.Opened()).Seconds())
	t.closed.WithLabelValues(end.Reason.String()).Inc()
	t.bytes.remove(tun)
}

// FrontendWrote implements relay.Observer.
func (t *tunnelMetrics) FrontendWrote(seconds float64) { t.frontendWrite.Observe(seconds) }

// ReaderBlocked implements relay.Observer.
func (t *tunnelMetrics) ReaderBlocked(delta int) { t.blocked.Add(float64(delta)) }

// UnknownDialResponse implements relay.Observer.
func (t *tunnelMetrics) UnknownDialResponse() { t.unrecognized.Inc() }

// failureLabel is the old metric's word for a reason. COMPAT 5.1.
func failureLabel(r wire.Reason) string {
	switch r {
	case wire.ReasonNoAgent:
		return failNoAgent
	case wire.ReasonBackendTimeout:
		return failTimeout
	case wire.ReasonBackendLost:
		return failBackendClose
	case wire.ReasonCanceled, wire.ReasonAborted:
		return failFrontend
	case wire.ReasonLimit:
		return failLimit
	case wire.ReasonShutdown:
		return failShutdown
	}
	return failResponse
}

// dialReason reports whether a dial may fail for r on a server: series for the
// others would only be looked at in vain.
func dialReason(r wire.Reason) bool {
	return r > wire.ReasonNone && r < wire.ReasonClientTimeout || r == wire.ReasonProtocolError
}

// endReason reports whether a tunnel may end for r on a server.
func endReason(r wire.Reason) bool {
	switch r {
	case wire.ReasonNone, wire.ReasonOther, wire.ReasonCanceled, wire.ReasonShutdown:
		return true
	}
	return r >= wire.ReasonReset
}
