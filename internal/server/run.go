package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/culvert-proxy/culvert/internal/server/relay"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

const (
	// stopLimit bounds the end of a server whose tunnels were told to end.
	stopLimit = 5 * time.Second
	// flushLimit bounds the last words to clients, which may not be reading.
	flushLimit = time.Second
)

// Run serves until ctx ends, then stops as COMPAT 11 says, and returns nil; or
// until a listener fails, and returns why. It closes everything before it returns.
func (s *Server) Run(ctx context.Context) error {
	defer s.Close()
	work, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.background(work)
	failed := make(chan error, 2)
	var serving sync.WaitGroup
	serving.Go(func() { failed <- s.serve("frontend", s.frontend.serve, s.frontSide) })
	serving.Go(func() { failed <- s.serve("agent listener", s.agentRPC.Serve, s.agentSide) })
	s.log.Info("Serving", "mode", string(s.cfg.Mode), "frontend", s.frontSide.Addr().String(), "agents", s.agentSide.Addr().String())
	var err error
	select {
	case <-ctx.Done():
		s.log.Info("Stopping", "cause", context.Cause(ctx).Error(), "tunnels", s.relay.Tunnels())
		s.stop(cancel)
	case err = <-failed:
	}
	s.Close()
	cancel()
	serving.Wait()
	s.running.Wait()
	return err
}

// serve runs one listener; its end while nobody stopped it is an error.
func (s *Server) serve(what string, accept func(net.Listener) error, l net.Listener) error {
	err := accept(l)
	if s.stopping.Load() || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return fmt.Errorf("%s ended: %w", what, err)
}

// stop is the graceful part: readiness fails, the lease is released, listeners close, new agents are
// told to move on, old ones keep their streams, and open tunnels have until the
// graceful timeout. What is then left is ended with an answer to its client.
func (s *Server) stop(counting context.CancelFunc) {
	s.stopping.Store(true)
	s.release(counting)
	s.frontend.stop()
	s.agentSide.Close()
	s.agents.Drain()
	if s.cfg.GracefulShutdownTimeout > 0 {
		s.outlast()
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if err := s.relay.Shutdown(ctx, relay.End{Reason: wire.ReasonShutdown, Text: "the proxy server is stopping"}); err != nil {
		s.log.Info("Some tunnels did not end in time and are cut", "tunnels", s.relay.Tunnels())
	}
	last, end := context.WithTimeout(ctx, flushLimit)
	defer end()
	s.frontend.flush(last)
}

// outlast waits until the last tunnel has ended and its client has been sent all of
// it, which a slow reader's own pace decides, for the graceful timeout at most.
func (s *Server) outlast() {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.GracefulShutdownTimeout)
	defer cancel()
	select {
	case <-s.relay.Idle():
		s.frontend.flush(ctx)
	case <-ctx.Done():
		s.log.Info("Tunnels are still open at the end of --graceful-shutdown-timeout; ending them", "tunnels", s.relay.Tunnels())
	}
}

// Close ends everything at once and waits for it. It may be called again.
func (s *Server) Close() {
	s.closing.Do(func() {
		s.stopping.Store(true)
		if s.frontend != nil {
			s.frontend.close()
		}
		if s.agentRPC != nil {
			s.agentRPC.Stop()
		}
		for _, l := range []net.Listener{s.frontSide, s.agentSide} {
			if l != nil {
				l.Close()
			}
		}
		if s.health != nil {
			s.health.Close()
		}
		if s.admin != nil {
			s.admin.Close()
		}
	})
}
