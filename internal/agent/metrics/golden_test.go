package metrics

import (
	"fmt"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

// idle is an agent's metrics right after its start.
func idle(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	families, err := New().Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// labels are the label names of a family; all its series must have the same.
func labels(t *testing.T, f *dto.MetricFamily) []string {
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

// Every metric that Konnectivity's agent has is there from the start, with its
// labels, and no other carries its prefix.
func TestUpstreamNames(t *testing.T) {
	list, err := os.ReadFile("testdata/upstream.txt")
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
	for _, f := range idle(t) {
		if !strings.HasPrefix(f.GetName(), prefix) {
			continue
		}
		names, known := want[f.GetName()]
		if got := labels(t, f); !known || !slices.Equal(got, names) {
			t.Errorf("%s has the labels %v, want %v (known: %v)", f.GetName(), got, names, known)
		}
		delete(want, f.GetName())
	}
	for name := range want {
		t.Errorf("%s is not there at the start", name)
	}
}

// TestGoldenStart holds every series that is there at the start, with its type,
// its help and its value; the runtime's own are left out.
func TestGoldenStart(t *testing.T) {
	var b strings.Builder
	for _, f := range idle(t) {
		if !strings.HasPrefix(f.GetName(), prefix) && !strings.HasPrefix(f.GetName(), ownPrefix) {
			continue
		}
		fmt.Fprintf(&b, "# %s %s: %s\n", f.GetName(), f.GetType(), f.GetHelp())
		for _, m := range f.GetMetric() {
			b.WriteString(series(m))
		}
	}
	golden(t, "testdata/start.txt", b.String())
}

// series is one line: labels and value.
func series(m *dto.Metric) string {
	var parts []string
	for _, l := range m.GetLabel() {
		parts = append(parts, l.GetName()+"="+l.GetValue())
	}
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
	return fmt.Sprintf("{%s} %s\n", strings.Join(parts, " "), value)
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s does not hold:\n%s", path, got)
	}
}

func TestHandler(t *testing.T) {
	m := New()
	for range 2 { // one handler for two ports
		rec := httptest.NewRecorder()
		m.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
		if got := rec.Header().Get("Content-Type"); got != "text/plain; version=0.0.4; charset=utf-8; escaping=underscores" {
			t.Errorf("content type %q", got)
		}
		for _, name := range []string{"go_goroutines", "process_open_fds", "promhttp_metric_handler_requests_total", prefix + "open_server_connections"} {
			if !strings.Contains(rec.Body.String(), "\n"+name) {
				t.Errorf("no %s", name)
			}
		}
	}
	req := httptest.NewRequest("GET", "/metrics", nil)
	req.Header.Set("Accept", "application/openmetrics-text")
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, req)
	if got := rec.Header().Get("Content-Type"); !strings.HasPrefix(got, "application/openmetrics-text") {
		t.Errorf("content type %q for OpenMetrics", got)
	}
}
