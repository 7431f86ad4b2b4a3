package observe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

const (
	// readHeaderTimeout bounds a request's head. COMPAT 4.
	readHeaderTimeout = 60 * time.Second
	// idleTimeout bounds a connection between requests; a scraper's stays open.
	idleTimeout = 5 * time.Minute
)

// Server serves one of the two ports.
type Server struct {
	listener net.Listener
	http     *http.Server
	done     chan struct{}
}

// Listen opens address (host:port; an empty host means all) and serves handler
// in the background. A port that cannot be opened is an error: nobody should
// find out from a missing probe. flag names the port for the message.
func Listen(ctx context.Context, flag, address string, handler http.Handler) (*Server, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	s := &Server{
		listener: listener,
		http:     &http.Server{Handler: handler, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout},
		done:     make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			listener.Close()
		}
	}()
	return s, nil
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close ends the server and waits for its goroutine.
func (s *Server) Close() {
	s.http.Close()
	<-s.done
}
