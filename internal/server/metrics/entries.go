package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/culvert-proxy/culvert/internal/server/agentlink"
	"github.com/culvert-proxy/culvert/internal/server/frontconnect"
	"github.com/culvert-proxy/culvert/internal/server/frontgrpc"
	"github.com/culvert-proxy/culvert/internal/streammetrics"
)

// Values of the label service_method.
const (
	methodProxy   = "Proxy"
	methodConnect = "Connect"
)

// entryMetrics are about what comes in: streams of clients and agents, and HTTP
// requests.
type entryMetrics struct {
	// Fixed after construction.
	fromAgents, fromClients *streammetrics.Observer

	connectStreams prometheus.Gauge // one of grpc_connections
	proxyStreams   prometheus.Gauge // another
	http           prometheus.Gauge
	refused        *prometheus.CounterVec
	ignored        *prometheus.CounterVec
	duplicates     prometheus.Counter
	replaced       prometheus.Counter
}

func newEntryMetrics(reg prometheus.Registerer, streams *streammetrics.Streams) *entryMetrics {
	open := gauges(prefix+"grpc_connections", "Open gRPC streams, by method.", "service_method")
	e := &entryMetrics{
		fromAgents:     streams.Between(streammetrics.ToAgent, streammetrics.FromAgent),
		fromClients:    streams.Between(streammetrics.ToClient, streammetrics.FromClient),
		connectStreams: open.WithLabelValues(methodConnect),
		proxyStreams:   open.WithLabelValues(methodProxy),
		http:           gauge(prefix+"http_connections", "HTTP requests in progress on the CONNECT frontend."),
		refused:        counters(ownPrefix+"agents_refused_total", "Agents that were not let in, by reason.", "reason"),
		ignored:        counters(ownPrefix+"agent_identifiers_ignored_total", "Identifier values of agents that could not be used, by key.", "key"),
		duplicates:     counter(ownPrefix+"duplicate_agent_ids_total", "Links of agents whose ID another process also uses."),
		replaced:       counter(ownPrefix+"agent_links_replaced_total", "Links that a newer one of the same agent replaced."),
	}
	for r := agentlink.RefusedMetadata; r <= agentlink.RefusedDraining; r++ {
		e.refused.WithLabelValues(r.String())
	}
	for _, key := range identifierKeys() {
		e.ignored.WithLabelValues(key)
	}
	reg.MustRegister(open, e.http, e.refused, e.ignored, e.duplicates, e.replaced)
	return e
}

// identifierKeys are the keys that a server knows. COMPAT 7.3.
func identifierKeys() []string { return []string{"ipv4", "ipv6", "host", "cidr", "default-route"} }

// agents implements agentlink.Observer.
type agents struct {
	*streammetrics.Observer
	entries *entryMetrics
}

var _ agentlink.Observer = agents{}

// StreamOpened implements agentlink.Observer.
func (a agents) StreamOpened(delta int) { a.entries.connectStreams.Add(float64(delta)) }

// Refused implements agentlink.Observer.
func (a agents) Refused(r agentlink.Refusal) { a.entries.refused.WithLabelValues(r.String()).Inc() }

// IdentifierIgnored implements agentlink.Observer. Keys are those that the parser
// knows; anything else would let an agent make series up.
func (a agents) IdentifierIgnored(key string) {
	for _, known := range identifierKeys() {
		if key == known {
			a.entries.ignored.WithLabelValues(key).Inc()
			return
		}
	}
	a.entries.ignored.WithLabelValues("other").Inc()
}

// DuplicateAgentID implements agentlink.Observer.
func (a agents) DuplicateAgentID(string) { a.entries.duplicates.Inc() }

// LinkReplaced implements agentlink.Observer.
func (a agents) LinkReplaced() { a.entries.replaced.Inc() }

// clients implements frontgrpc.Observer.
type clients struct {
	*streammetrics.Observer
	entries *entryMetrics
}

var _ frontgrpc.Observer = clients{}

// StreamOpened implements frontgrpc.Observer.
func (c clients) StreamOpened(delta int) { c.entries.proxyStreams.Add(float64(delta)) }

// connects implements frontconnect.Observer.
type connects struct{ entries *entryMetrics }

var _ frontconnect.Observer = connects{}

// InFlight implements frontconnect.Observer.
func (c connects) InFlight(delta int) { c.entries.http.Add(float64(delta)) }
