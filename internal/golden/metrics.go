package golden

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

func gather(t *testing.T, from prometheus.Gatherer) []*dto.MetricFamily {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// Names checks that every metric that the file at path lists (a name and label
// names a line) is there with its labels, and no other carries prefix.
func Names(t *testing.T, path, prefix string, from prometheus.Gatherer) {
	t.Helper()
	list, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{}
	for line := range strings.Lines(string(list)) {
		if words := strings.Fields(line); len(words) > 0 {
			slices.Sort(words[1:])
			want[words[0]] = words[1:]
		}
	}
	for _, f := range gather(t, from) {
		if !strings.HasPrefix(f.GetName(), prefix) {
			continue
		}
		names, known := want[f.GetName()]
		if got := labelNames(t, f); !known || !slices.Equal(got, names) {
			t.Errorf("%s has the labels %v, want %v (known: %v)", f.GetName(), got, names, known)
		}
		delete(want, f.GetName())
	}
	for name := range want {
		t.Errorf("%s is not there at the start", name)
	}
}

// labelNames are those of a family; all its series must have the same.
func labelNames(t *testing.T, f *dto.MetricFamily) []string {
	t.Helper()
	var names []string
	for i, m := range f.GetMetric() {
		var own []string
		for _, l := range m.GetLabel() {
			own = append(own, l.GetName())
		}
		if i > 0 && !slices.Equal(own, names) {
			t.Errorf("%s has series with the labels %v and %v", f.GetName(), names, own)
		}
		names = own
	}
	return names
}

// Series compares every series whose name has one of the prefixes with the file
// at path: type, help, labels and value.
func Series(t *testing.T, path string, from prometheus.Gatherer, prefixes ...string) {
	t.Helper()
	var b strings.Builder
	for _, f := range gather(t, from) {
		if !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(f.GetName(), p) }) {
			continue
		}
		fmt.Fprintf(&b, "# %s %s: %s\n", f.GetName(), f.GetType(), f.GetHelp())
		for _, m := range f.GetMetric() {
			b.WriteString(series(m))
		}
	}
	Compare(t, path, []byte(b.String()))
}

// series is one line: labels and value.
func series(m *dto.Metric) string {
	value := ""
	switch {
	case m.Counter != nil:
		value = fmt.Sprint(m.Counter.GetValue())
	case m.Gauge != nil:
		value = fmt.Sprint(m.Gauge.GetValue())
	case m.Histogram != nil:
		var bounds []string
		for _, bucket := range m.Histogram.GetBucket() {
			bounds = append(bounds, fmt.Sprint(bucket.GetUpperBound()))
		}
		value = fmt.Sprintf("%d in [%s]", m.Histogram.GetSampleCount(), strings.Join(bounds, " "))
	}
	return fmt.Sprintf("{%s} %s\n", strings.Join(pairs(m), " "), value)
}

func pairs(m *dto.Metric) []string {
	var parts []string
	for _, l := range m.GetLabel() {
		parts = append(parts, l.GetName()+"="+l.GetValue())
	}
	return parts
}

// Values checks single series, named as name{label=value,...}; a histogram's
// value is its count.
func Values(t *testing.T, from prometheus.Gatherer, want map[string]float64) {
	t.Helper()
	got := map[string]float64{}
	for _, f := range gather(t, from) {
		for _, s := range f.GetMetric() {
			name := f.GetName() + "{" + strings.Join(pairs(s), ",") + "}"
			got[name] = s.GetCounter().GetValue() + s.GetGauge().GetValue() + float64(s.GetHistogram().GetSampleCount())
		}
	}
	for name, v := range want {
		if !strings.Contains(name, "{") {
			name += "{}"
		}
		if have, ok := got[name]; !ok || have != v {
			t.Errorf("%s is %v (there: %v), want %v", name, have, ok, v)
		}
	}
}

// Exposition checks what a /metrics page answers: its content type, also for
// OpenMetrics, the collectors of the runtime, and a metric of the process's own.
func Exposition(t *testing.T, page http.Handler, own string) {
	t.Helper()
	for range 2 { // one handler for two ports
		header, body := ask(page, "")
		if got := header.Get("Content-Type"); got != "text/plain; version=0.0.4; charset=utf-8; escaping=underscores" {
			t.Errorf("content type %q", got)
		}
		for _, name := range []string{"go_goroutines", "process_open_fds", "promhttp_metric_handler_requests_total", own} {
			if !strings.Contains(body, "\n"+name) {
				t.Errorf("no %s", name)
			}
		}
	}
	if header, _ := ask(page, "application/openmetrics-text"); !strings.HasPrefix(header.Get("Content-Type"), "application/openmetrics-text") {
		t.Errorf("content type %q for OpenMetrics", header.Get("Content-Type"))
	}
}

func ask(page http.Handler, accept string) (http.Header, string) {
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	recorder := httptest.NewRecorder()
	page.ServeHTTP(recorder, request)
	return recorder.Header(), recorder.Body.String()
}
