package metrics

import (
	"errors"
	"io"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/culvert-proxy/culvert/internal/streammetrics"
	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Results of attempts to connect to a server.
const (
	resultConnected = "connected"
	resultDuplicate = "duplicate"
	resultFailed    = "failed"
)

// linkMetrics are about the links to servers. It implements link.Observer.
type linkMetrics struct {
	*streammetrics.Observer

	// Fixed after construction.
	toServer, fromServer prometheus.Counter // server_connection_failure_count
	open                 prometheus.Gauge
	known                prometheus.Gauge
	attempts             *prometheus.CounterVec
}

var _ link.Observer = (*linkMetrics)(nil)

func newLinkMetrics(reg prometheus.Registerer) *linkMetrics {
	failures := counters(prefix+"server_connection_failure_count", "Deprecated: errors of streams to servers, by direction. Use stream_errors_total.", "direction")
	l := &linkMetrics{
		Observer:   streammetrics.New(reg, prefix).Between(streammetrics.FromAgent, streammetrics.ToAgent),
		toServer:   failures.WithLabelValues("to_server"),
		fromServer: failures.WithLabelValues("from_server"),
		open:       gauge(prefix+"open_server_connections", "Servers that the agent is connected to."),
		known:      gauge(prefix+"known_server_count", "Servers that there are, as far as the agent knows."),
		attempts:   counters(ownPrefix+"connect_attempts_total", "Attempts to connect to a server, by result.", "result"),
	}
	for _, r := range []string{resultConnected, resultDuplicate, resultFailed} {
		l.attempts.WithLabelValues(r)
	}
	reg.MustRegister(failures, l.open, l.known, l.attempts)
	return l
}

// SendFailed implements link.Observer.
func (l *linkMetrics) SendFailed(t wire.PacketType, err error) {
	l.Observer.SendFailed(t, err)
	if !errors.Is(err, io.EOF) {
		l.toServer.Inc()
	}
}

// ReceiveFailed implements link.Observer.
func (l *linkMetrics) ReceiveFailed(err error) {
	l.Observer.ReceiveFailed(err)
	if !errors.Is(err, io.EOF) {
		l.fromServer.Inc()
	}
}

// Fleet takes the numbers of the links as a whole. Safe for concurrent use.
type Fleet struct{ m *linkMetrics }

// Connected sets how many servers the agent is connected to.
func (f *Fleet) Connected(n int) { f.m.open.Set(float64(n)) }

// Known sets how many servers there are, after each count.
func (f *Fleet) Known(n int) { f.m.known.Set(float64(n)) }

// AttemptConnected counts an attempt that gave a link which was kept.
func (f *Fleet) AttemptConnected() { f.m.attempts.WithLabelValues(resultConnected).Inc() }

// AttemptDuplicate counts an attempt that met a server which has a link already.
func (f *Fleet) AttemptDuplicate() { f.m.attempts.WithLabelValues(resultDuplicate).Inc() }

// AttemptFailed counts an attempt that gave no link.
func (f *Fleet) AttemptFailed() { f.m.attempts.WithLabelValues(resultFailed).Inc() }
