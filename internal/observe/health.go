package observe

import (
	"fmt"
	"net/http"
	"strings"
)

// Check is one condition of readiness. Probe must not block and is safe for
// concurrent use; its error says what is missing.
type Check struct {
	Name  string
	Probe func() error
}

// Health describes a health port.
type Health struct {
	Checks []Check
	// Verbose decides whether the list of checks is shown; nil means when the
	// query has the key "verbose". A failure of an agent has always been shown so.
	AlwaysVerboseOnFailure bool
	// FailureStatus is what a failing readiness answers: 500 on a server, 503 on
	// an agent, since probes and dashboards know them so. COMPAT 4.
	FailureStatus int
	Metrics       http.Handler
	// Detail, if set, adds lines to a verbose answer.
	Detail func() []string
}

// Handler serves /healthz, /livez, /readyz, /ready (its older name) and /metrics.
func (h Health) Handler() http.Handler {
	mux := http.NewServeMux()
	alive := func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok") }
	mux.HandleFunc("/healthz", alive)
	mux.HandleFunc("/livez", alive)
	mux.HandleFunc("/readyz", h.ready)
	mux.HandleFunc("/ready", h.ready)
	mux.Handle("/metrics", h.Metrics)
	return mux
}

func (h Health) ready(w http.ResponseWriter, r *http.Request) {
	var lines []string
	var first error
	lines = append(lines, "[+]ping ok")
	for _, check := range h.Checks {
		if err := check.Probe(); err != nil {
			lines = append(lines, fmt.Sprintf("[-]%s failed: %v", check.Name, err))
			if first == nil {
				first = err
			}
			continue
		}
		lines = append(lines, fmt.Sprintf("[+]%s ok", check.Name))
	}
	if h.Detail != nil {
		lines = append(lines, h.Detail()...)
	}
	_, verbose := r.URL.Query()["verbose"]
	switch {
	case first == nil && verbose:
		plain(w, http.StatusOK, strings.Join(lines, "\n")+"\ncheck passed\n")
	case first == nil:
		plain(w, http.StatusOK, "ok")
	case verbose || h.AlwaysVerboseOnFailure:
		plain(w, h.FailureStatus, strings.Join(lines, "\n")+"\n")
	default:
		plain(w, h.FailureStatus, first.Error())
	}
}

func plain(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprint(w, body) //nolint:errcheck // a client that left needs no answer
}
