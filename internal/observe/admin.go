package observe

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"strings"
)

// Admin describes an admin port.
type Admin struct {
	// Metrics serves /metrics; MetricsPort, if set, redirects it to the health
	// port of the same host instead, as an agent always has. COMPAT 4.2.
	Metrics     http.Handler
	MetricsPort string
	// Status makes the status page anew for each request: a value that prints
	// itself for people (fmt.Stringer) and marshals to JSON.
	Status func() fmt.Stringer
	// Extra adds pages by path.
	Extra map[string]http.Handler
	// Profiling serves /debug/pprof/, without the command line.
	Profiling bool
}

// Handler serves /metrics, /statusz and, with Profiling, /debug/pprof/.
func (a Admin) Handler() http.Handler {
	mux := http.NewServeMux()
	if a.MetricsPort != "" {
		mux.HandleFunc("/metrics", a.redirect)
	} else {
		mux.Handle("/metrics", a.Metrics)
	}
	if a.Status != nil {
		mux.HandleFunc("/statusz", a.status)
	}
	for path, page := range a.Extra {
		mux.Handle(path, page)
	}
	if a.Profiling {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
		// The command line may hold what not everyone should read.
		mux.Handle("/debug/pprof/cmdline", http.NotFoundHandler())
		mux.Handle("/debug/pprof", http.RedirectHandler("/debug/pprof/", http.StatusMovedPermanently))
	}
	return mux
}

// redirect leads to the health port of the host that the client asked.
func (a Admin) redirect(w http.ResponseWriter, r *http.Request) {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
		host = "[" + host + "]"
	}
	to := url.URL{Host: host + ":" + a.MetricsPort, Path: "/metrics", RawQuery: r.URL.RawQuery}
	http.Redirect(w, r, to.String(), http.StatusMovedPermanently)
}

func (a Admin) status(w http.ResponseWriter, r *http.Request) {
	page := a.Status()
	if r.URL.Query().Get("format") != "json" {
		plain(w, http.StatusOK, page.String())
		return
	}
	body, err := json.MarshalIndent(page, "", "  ")
	if err != nil {
		plain(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(append(body, '\n')) //nolint:errcheck // a client that left needs no answer
}
