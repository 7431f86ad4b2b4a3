package serverlink

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// The stages of connecting, in their order. A server that goes silent in any of
// them costs the limit of one stage.
const (
	stageConnect = "TCP connection"
	stageTLS     = "TLS handshake"
	stageStream  = "HTTP/2 stream"
	stageHeaders = "response headers"
)

// stages watches over an attempt: a stage that takes too long ends it.
type stages struct {
	// Fixed after construction.
	limit time.Duration
	end   func(error) // ends the attempt

	// Guarded by mu.
	mu    sync.Mutex
	timer *time.Timer
	done  bool
	cause error // the first that was reported, or the stage that took too long
}

// StageError says that a server went silent while it was connected to.
type StageError struct {
	Stage string
	Limit time.Duration
}

func (e *StageError) Error() string {
	return fmt.Sprintf("no answer within %v: %s", e.Limit, e.Stage)
}

// Timeout is true.
func (e *StageError) Timeout() bool { return true }

// Unwrap makes a StageError a context.DeadlineExceeded.
func (e *StageError) Unwrap() error { return context.DeadlineExceeded }

// enter begins a stage and ends the one before.
func (s *stages) enter(stage string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	s.timer = time.AfterFunc(s.limit, func() { s.expire(stage) })
}

func (s *stages) expire(stage string) {
	err := &StageError{Stage: stage, Limit: s.limit}
	s.report(err)
	s.end(err)
}

// report notes why the attempt fails, better than gRPC can say it.
func (s *stages) report(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil && !s.done {
		s.cause = err
	}
}

// finish ends the watch and returns what was reported.
func (s *stages) finish() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = true
	if s.timer != nil {
		s.timer.Stop()
	}
	return s.cause
}
