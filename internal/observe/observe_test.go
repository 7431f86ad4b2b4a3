package observe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func ask(handler http.Handler, method, target string) (status int, body string, header http.Header) {
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(method, target, nil))
	text, _ := io.ReadAll(recorder.Body)
	return recorder.Code, string(text), recorder.Header()
}

func metrics() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "metrics") })
}

// TestGoldenHealth holds the bodies that probes and dashboards know. COMPAT 4.
func TestGoldenHealth(t *testing.T) {
	missing := errors.New("no connection to any proxy agent")
	for _, c := range []struct {
		name   string
		agent  bool
		err    error
		path   string
		status int
		body   string
	}{
		{"alive", false, missing, "/healthz", 200, "ok"},
		{"live", false, missing, "/livez", 200, "ok"},
		{"server ready", false, nil, "/readyz", 200, "ok"},
		{"server ready by the old name", false, nil, "/ready", 200, "ok"},
		{"server not ready", false, missing, "/readyz", 500, "no connection to any proxy agent"},
		{"server not ready, verbose", false, missing, "/readyz?verbose", 500, "[+]ping ok\n[-]agents failed: no connection to any proxy agent\n"},
		{"server ready, verbose", false, nil, "/readyz?verbose=1", 200, "[+]ping ok\n[+]agents ok\ncheck passed\n"},
		{"agent ready", true, nil, "/ready", 200, "ok"},
		{"agent not ready", true, errors.New("no servers connected"), "/readyz", 503, "[+]ping ok\n[-]agents failed: no servers connected\n"},
		{"unknown path", false, nil, "/nothing", 404, "404 page not found\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := Health{Checks: []Check{{"agents", func() error { return c.err }}}, FailureStatus: 500, Metrics: metrics()}
			if c.agent {
				h.FailureStatus, h.AlwaysVerboseOnFailure = 503, true
			}
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				status, body, header := ask(h.Handler(), method, c.path)
				if status != c.status || body != c.body {
					t.Errorf("%s %s: %d %q, want %d %q", method, c.path, status, body, c.status, c.body)
				}
				if got := header.Get("Content-Type"); got != "text/plain; charset=utf-8" {
					t.Errorf("%s %s: content type %q", method, c.path, got)
				}
			}
		})
	}
}

type page struct{ Links int }

func (p page) String() string { return "links: 3\n" }

func TestAdminPages(t *testing.T) {
	a := Admin{Metrics: metrics(), Status: func() fmt.Stringer { return page{3} }}
	if status, body, _ := ask(a.Handler(), "GET", "/statusz"); status != 200 || body != "links: 3\n" {
		t.Errorf("/statusz: %d %q", status, body)
	}
	if _, body, _ := ask(a.Handler(), "GET", "/statusz?format=json"); !strings.Contains(body, `"Links": 3`) {
		t.Errorf("/statusz?format=json: %q", body)
	}
	for path, want := range map[string]int{"/debug/pprof": 404, "/debug/pprof/": 404, "/debug/pprof/heap": 404, "/metrics": 200} {
		if status, _, _ := ask(a.Handler(), "GET", path); status != want {
			t.Errorf("%s without profiling: %d, want %d", path, status, want)
		}
	}
	a.Profiling = true
	for path, want := range map[string]int{"/debug/pprof": 301, "/debug/pprof/": 200, "/debug/pprof/heap": 200, "/debug/pprof/cmdline": 404, "/debug/pprof/symbol": 200} {
		if status, _, _ := ask(a.Handler(), "GET", path); status != want {
			t.Errorf("%s with profiling: %d, want %d", path, status, want)
		}
	}
}

func TestAgentRedirectsItsMetrics(t *testing.T) {
	a := Admin{MetricsPort: "8093"}
	for target, want := range map[string]string{
		"http://example:8094/metrics?name=a": "//example:8093/metrics?name=a",
		"http://[::1]:8094/metrics":          "//[::1]:8093/metrics",
		"http://example/metrics":             "//example:8093/metrics",
	} {
		status, _, header := ask(a.Handler(), "GET", target)
		if got := header.Get("Location"); status != 301 || got != want {
			t.Errorf("%s: %d to %q, want 301 to %q", target, status, got, want)
		}
	}
}

func TestPortInUseIsAnError(t *testing.T) {
	first, err := Listen(context.Background(), "health-port", "127.0.0.1:0", metrics())
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	_, err = Listen(context.Background(), "health-port", first.Addr().String(), metrics())
	if err == nil || !strings.Contains(err.Error(), "--health-port") || !strings.Contains(err.Error(), first.Addr().String()) {
		t.Errorf("error is %v", err)
	}
}

func TestServesUntilClosed(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	s, err := Listen(context.Background(), "admin-port", "127.0.0.1:0", Admin{Metrics: metrics()}.Handler())
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	url := "http://" + s.Addr().String() + "/metrics"
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 200 || string(body) != "metrics" {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
	s.Close()
	if _, err := client.Get(url); err == nil {
		t.Error("the port is open after Close")
	}
	client.CloseIdleConnections()
	goleak.VerifyNone(t, ignore)
}
