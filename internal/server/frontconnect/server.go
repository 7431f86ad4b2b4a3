package frontconnect

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/culvert-proxy/culvert/internal/server/relay"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Name is what this frontend is called in logs and metrics.
const Name = "http-connect"

const (
	// readHeaderTimeout bounds a request head, maxHeaderBytes its size. COMPAT 2.1.
	readHeaderTimeout = 60 * time.Second
	maxHeaderBytes    = 1 << 20
	// headGrace is how long Stop lets request heads arrive that are on their way.
	headGrace = time.Second
	// drainQuiet: see session.go.
	drainQuiet = time.Second
)

// Config is what the frontend is told. The zero value works.
type Config struct {
	// ErrorLog takes net/http's lines about single connections (failed TLS
	// handshakes, for instance); nil drops them.
	ErrorLog *log.Logger
}

// Observer is told what happens, for metrics. Its methods must not block.
type Observer interface {
	// InFlight is called with +1 when a request begins, of any method, and with
	// -1 when it has ended: for a CONNECT when its socket is closed.
	InFlight(delta int)
}

// opener starts tunnels: *relay.Relay, behind OpenWith.
type opener interface {
	open(ctx context.Context, req relay.Request, f relay.Frontend) tunnel
	newDialID() wire.DialID
}

// Server is the frontend. Its methods are safe for concurrent use.
type Server struct {
	// Fixed after construction.
	ctx     context.Context // of all dials; ends with Close
	cancel  context.CancelFunc
	relay   opener
	obs     Observer
	http    *http.Server
	chunks  *chunkPool // for sockets
	records *chunkPool // for TLS and other streams
	gather  *gatherer
	// drainQuiet is how long a client may stay silent and open after the end.
	drainQuiet time.Duration

	mu sync.Mutex
	// Guarded by mu.
	sessions map[uint64]*session
	lastID   uint64
	closed   bool
	watch    *watcher      // nil until a listener has kernel sockets
	empty    chan struct{} // closed when sessions is empty; nil if nobody waits
}

// New returns a frontend that opens its tunnels on r. obs may be nil.
func New(cfg Config, r *relay.Relay, obs Observer) *Server {
	return newServer(cfg, relayOpener{r}, obs)
}

func newServer(cfg Config, o opener, obs Observer) *Server {
	if obs == nil {
		obs = nopObserver{}
	}
	s := &Server{
		relay:      o,
		obs:        obs,
		chunks:     &chunkPool{size: chunkSize},
		records:    &chunkPool{size: recordSize},
		gather:     &gatherer{},
		drainQuiet: drainQuiet,
		sessions:   map[uint64]*session{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	errorLog := cfg.ErrorLog
	if errorLog == nil {
		errorLog = log.New(io.Discard, "", 0)
	}
	s.http = &http.Server{
		Handler:           http.HandlerFunc(s.serveHTTP),
		Protocols:         protocols,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       readHeaderTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          errorLog,
	}
	return s
}

// Serve accepts clients on l until Stop or Close, which make it return nil. It
// owns l and closes it.
func (s *Server) Serve(l net.Listener) error {
	if err := s.startWatching(l); err != nil {
		_ = l.Close()
		return err
	}
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// startWatching starts the watcher, once there may be sockets to watch.
func (s *Server) startWatching(l net.Listener) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := l.Addr().Network(); s.closed || s.watch != nil || (n != "unix" && n != "tcp") {
		return nil
	}
	w, err := newWatcher(s.clientSigns)
	if err != nil {
		return err
	}
	s.watch = w
	return nil
}

func (s *Server) clientSigns(id uint64, g sign) {
	s.mu.Lock()
	sess := s.sessions[id]
	s.mu.Unlock()
	if sess != nil {
		sess.clientSigns(g)
	}
}

// Stop closes the listeners and waits for the request heads that were on their
// way, for a second at most. Tunnels and dials go on.
func (s *Server) Stop() {
	ctx, cancel := context.WithTimeout(context.Background(), headGrace)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
}

// Wait returns when every client's socket is closed, or with ctx's error.
func (s *Server) Wait(ctx context.Context) error {
	s.mu.Lock()
	if len(s.sessions) == 0 {
		s.mu.Unlock()
		return nil
	}
	if s.empty == nil {
		s.empty = make(chan struct{})
	}
	empty := s.empty
	s.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends everything at once: listeners, dials, and the sockets of all
// clients, whose tunnels it aborts. It waits for the watcher but not for relay.
func (s *Server) Close() {
	s.cancel()
	_ = s.http.Close()
	s.mu.Lock()
	s.closed = true
	w := s.watch
	s.watch = nil
	rest := make([]*session, 0, len(s.sessions))
	for _, sess := range s.sessions {
		rest = append(rest, sess)
	}
	s.mu.Unlock()
	if w != nil {
		w.close()
	}
	for _, sess := range rest {
		sess.cut()
	}
}

// Sessions is the number of clients between request head and closed socket.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// admit registers a session, unless the server was closed.
func (s *Server) admit(sess *session) (w *watcher, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false
	}
	s.lastID++
	sess.id = s.lastID
	s.sessions[sess.id] = sess
	return s.watch, true
}

// forget is a session's end.
func (s *Server) forget(id uint64) {
	s.obs.InFlight(-1)
	s.mu.Lock()
	delete(s.sessions, id)
	if len(s.sessions) == 0 && s.empty != nil {
		close(s.empty)
		s.empty = nil
	}
	s.mu.Unlock()
}

type relayOpener struct{ r *relay.Relay }

func (o relayOpener) open(ctx context.Context, req relay.Request, f relay.Frontend) tunnel {
	return o.r.Open(ctx, req, f)
}

func (o relayOpener) newDialID() wire.DialID { return o.r.NewDialID() }

type nopObserver struct{}

func (nopObserver) InFlight(int) {}
