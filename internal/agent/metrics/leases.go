package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// leaseMetrics are about counting servers by their leases. The label is called
// http_response_code here and http_status_code on the server. COMPAT 5.2.
type leaseMetrics struct {
	// Fixed after construction.
	lists         *prometheus.CounterVec
	watches       *prometheus.CounterVec
	listLatency   *prometheus.HistogramVec
	countFailures *prometheus.CounterVec
}

func newLeaseMetrics(reg prometheus.Registerer) *leaseMetrics {
	l := &leaseMetrics{
		lists:   counters(prefix+"lease_lists_total", "Lists of leases, by HTTP status and the API's reason.", "http_response_code", "reason"),
		watches: counters(prefix+"lease_watches_total", "Watches of leases, by HTTP status and the API's reason.", "http_response_code", "reason"),
		listLatency: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + "lease_list_latency_seconds",
			Help: "Time of lists of leases, in seconds.", Buckets: dialBuckets()}, []string{"http_response_code"}),
		countFailures: counters(ownPrefix+"server_count_failures_total", "Times that the number of servers could not be brought up to date, by source.", "source"),
	}
	l.lists.WithLabelValues("200", "")
	l.watches.WithLabelValues("200", "")
	l.listLatency.WithLabelValues("200")
	l.countFailures.WithLabelValues("lease")
	reg.MustRegister(l.lists, l.watches, l.listLatency, l.countFailures)
	return l
}

// Leases observes lists and watches: it has the methods of lease.Observer.
type Leases struct{ m *leaseMetrics }

// Listed counts a LIST with its HTTP status and the API's reason.
func (l *Leases) Listed(code int, reason string, took time.Duration) {
	l.m.lists.WithLabelValues(strconv.Itoa(code), reason).Inc()
	l.m.listLatency.WithLabelValues(strconv.Itoa(code)).Observe(took.Seconds())
}

// Watched counts an attempt to open a WATCH.
func (l *Leases) Watched(code int, reason string) {
	l.m.watches.WithLabelValues(strconv.Itoa(code), reason).Inc()
}

// Deleted is never called: an agent deletes no leases.
func (l *Leases) Deleted(int, string, time.Duration) {}

// Published is never called: an agent has no lease.
func (l *Leases) Published(error) {}

// CountingFailed counts a number of servers that could not be found out.
func (l *Leases) CountingFailed(source string, _ error) {
	l.m.countFailures.WithLabelValues(source).Inc()
}
