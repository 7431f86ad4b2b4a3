package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// leaseMetrics are about the leases that servers publish and collect.
type leaseMetrics struct {
	// Fixed after construction.
	culled        prometheus.Counter
	deleteLatency *prometheus.HistogramVec
	deletes       *prometheus.CounterVec
	listLatency   *prometheus.HistogramVec
	lists         *prometheus.CounterVec
	published     *prometheus.CounterVec
	countFailures *prometheus.CounterVec
}

func newLeaseMetrics(reg prometheus.Registerer) *leaseMetrics {
	latency := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.DefBuckets},
			[]string{"http_status_code"})
	}
	l := &leaseMetrics{
		culled:        counter(prefix+"culled_leases_count", "Expired leases that were deleted."),
		deleteLatency: latency(prefix+"lease_delete_latency_seconds", "Time of deletions of leases, in seconds."),
		deletes:       counters(prefix+"lease_delete_total", "Deletions of leases, by HTTP status and the API's reason.", "http_status_code", "reason"),
		listLatency:   latency(prefix+"lease_list_latency_seconds", "Time of lists of leases, in seconds."),
		lists:         counters(prefix+"lease_list_total", "Lists of leases, by HTTP status and the API's reason.", "http_status_code", "reason"),
		published:     counters(ownPrefix+"lease_publications_total", "Attempts to write this server's own lease.", "result"),
		countFailures: counters(ownPrefix+"server_count_failures_total", "Times that the number of servers could not be brought up to date, by source.", "source"),
	}
	l.deleteLatency.WithLabelValues("200")
	l.deletes.WithLabelValues("200", "")
	l.listLatency.WithLabelValues("200")
	l.lists.WithLabelValues("200", "")
	l.published.WithLabelValues("ok")
	l.published.WithLabelValues("error")
	l.countFailures.WithLabelValues("lease")
	l.countFailures.WithLabelValues("file")
	reg.MustRegister(l.culled, l.deleteLatency, l.deletes, l.listLatency, l.lists, l.published, l.countFailures)
	return l
}

// Leases observes the lease controller: it has the methods of lease.Observer.
type Leases struct{ m *leaseMetrics }

// Listed counts a LIST with its HTTP status and the API's reason.
func (l *Leases) Listed(code int, reason string, took time.Duration) {
	l.m.lists.WithLabelValues(strconv.Itoa(code), reason).Inc()
	l.m.listLatency.WithLabelValues(strconv.Itoa(code)).Observe(took.Seconds())
}

// Watched is of no interest: a server's controller lists.
func (l *Leases) Watched(int, string) {}

// Deleted counts a DELETE of an expired lease.
func (l *Leases) Deleted(code int, reason string, took time.Duration) {
	l.m.deletes.WithLabelValues(strconv.Itoa(code), reason).Inc()
	l.m.deleteLatency.WithLabelValues(strconv.Itoa(code)).Observe(took.Seconds())
	if code == 200 {
		l.m.culled.Inc()
	}
}

// Published counts an attempt to write the server's own lease.
func (l *Leases) Published(err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	l.m.published.WithLabelValues(result).Inc()
}

// CountingFailed counts a number of servers that could not be found out.
func (l *Leases) CountingFailed(source string, _ error) {
	l.m.countFailures.WithLabelValues(source).Inc()
}
