package server

import (
	"context"
	"time"

	"github.com/culvert-proxy/culvert/internal/lease"
	"github.com/culvert-proxy/culvert/internal/servercounter"
)

// releaseLimit bounds the deletion of the server's own lease when it stops.
const releaseLimit = 5 * time.Second

// counting sets what tells agents how many servers there are, and notes what has
// to run beside the server for it.
func (s *Server) counting(deps Deps) error {
	if !s.cfg.LeaseController {
		s.counter = s.plainCounter()
		return nil
	}
	client := deps.Leases
	if client == nil {
		var err error
		if client, err = lease.NewClient(s.cfg.Kube); err != nil {
			return err
		}
	}
	s.publisher = lease.NewPublisher(lease.PublisherConfig{
		Client:    client,
		Namespace: s.cfg.LeaseNamespace,
		ServerID:  s.cfg.ServerID,
		Labels:    s.cfg.LeaseLabels,
		Observer:  s.metrics.Leases(),
		Logger:    s.log,
	})
	collector := lease.NewCollector(lease.CollectorConfig{
		Client:    client,
		Namespace: s.cfg.LeaseNamespace,
		Labels:    s.cfg.LeaseLabels,
		ServerID:  s.cfg.ServerID,
		Fallback:  s.cfg.ServerCount,
		Changed:   s.announce,
		Observer:  s.metrics.Leases(),
		Logger:    s.log,
	})
	s.counter = collector
	s.beside = append(s.beside, s.publisher.Run, collector.Run)
	return nil
}

// plainCounter needs no Kubernetes. A count below 1 is told as it is: agents take
// it as unknown. COMPAT 3.1.
func (s *Server) plainCounter() servercounter.ServerCounter {
	if s.cfg.ServerCountFile == "" {
		return servercounter.Static(s.cfg.ServerCount)
	}
	file := servercounter.NewFile(servercounter.FileConfig{
		Path:     s.cfg.ServerCountFile,
		Fallback: s.cfg.ServerCount,
		Changed:  s.announce,
		Reporter: s.metrics.Leases(),
		Logger:   s.log,
	})
	s.beside = append(s.beside, file.Run)
	return file
}

// announce pushes a changed number over the live links; counters call it.
func (s *Server) announce() {
	n := s.counter.CountServers()
	s.log.Info("The number of servers changed", "count", n)
	s.agents.AnnounceCount(n)
}

// background runs what counts, until ctx ends.
func (s *Server) background(ctx context.Context) {
	for _, run := range s.beside {
		s.running.Go(func() {
			if err := run(ctx); err != nil {
				s.log.Error(err, "Counting of servers ended; the last number holds")
			}
		})
	}
}

// release ends the counting and deletes the server's lease, so that agents stop
// counting this server before its listeners close.
func (s *Server) release(stop context.CancelFunc) {
	stop()
	s.running.Wait()
	if s.publisher == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	if err := s.publisher.Release(ctx); err != nil {
		s.log.Error(err, "The server's lease could not be deleted; it expires by itself")
	}
}
