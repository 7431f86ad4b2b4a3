package frontconnect

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// answerTimeout bounds the last writes: a failure's answer, a close_notify.
const answerTimeout = 2 * time.Second

// drainTimes says how long the rest of the client's input is thrown away after an
// end, for a client that does not close: rounds of the first, and further ones
// while the client's side is still taking what was written, up to the second. A
// reset follows as soon as all was taken.
func (s *Server) drainTimes(reset bool) (quiet time.Duration, until time.Time) {
	if reset {
		return s.drainQuiet / 100, time.Now().Add(s.drainQuiet / 2)
	}
	return s.drainQuiet, time.Now().Add(10 * s.drainQuiet)
}

// tunnel is what a session needs of *relay.Tunnel.
type tunnel interface {
	WaitEstablished() error
	Established() bool
	Write(p wire.Payload) error
	CloseWrite()
	HangUp()
	Close()
	Abort(reason wire.Reason, text string)
}

// session is one client's CONNECT, from the hijacked socket to its end. Its
// reading goroutine feeds the tunnel; the tunnel's goroutine calls the methods of
// relay.Frontend (frontend.go); the watcher's tells of a client that left.
type session struct {
	// Fixed after construction.
	srv  *Server
	id   uint64
	sock socket
	in   input

	// Owned by the tunnel's goroutine.
	spoke bool // something was written behind the 200 line

	// Owned by the reader.
	early   wire.Payload // came behind the request head
	discard bool         // the tunnel takes no more

	mu sync.Mutex
	// Guarded by mu.
	stage       stage
	tun         tunnel // nil until the relay has returned it
	fin         bool   // the client's side has sent FIN
	shut        bool   // our side has sent FIN
	hungUp      bool   // the client is gone in both directions, in an orderly way
	abnormal    bool   // how the tunnel ended, once it has
	interrupted bool
	quiet       time.Duration // of one round of draining
	until       time.Time     // when draining ends at the latest
}

// attach gives the session its tunnel and starts the reader. The client may have
// left in the meantime.
func (s *session) attach(t tunnel) {
	s.mu.Lock()
	s.tun = t
	gone := s.hungUp
	s.mu.Unlock()
	if gone {
		s.tellHangUp(t, false)
	}
}

// read is the reader's goroutine.
func (s *session) read() {
	s.discard = s.tun.WaitEstablished() != nil
	if s.discard {
		s.early.Free()
	} else {
		s.checkFIN()
		if s.early.Len() > 0 {
			s.discard = s.tun.Write(s.early) != nil
		}
	}
	s.early = wire.Payload{}
	for {
		p, err := s.in.next()
		switch {
		case err != nil:
			if s.inputEnded(err) {
				s.leave()
				return
			}
		case s.discard:
			p.Free()
		default:
			s.discard = s.tun.Write(p) != nil
		}
	}
}

// inputEnded reacts to the end of the client's bytes and reports whether the
// reader is done.
func (s *session) inputEnded(err error) bool {
	switch {
	case errors.Is(err, io.EOF):
		s.inputEOF()
	case errors.Is(err, syscall.ECONNRESET) && s.sock.medium == overUnix:
		// The client closed without reading all that was written to it. On a Unix
		// socket nothing that it wrote itself is lost by that, so it is a hang-up.
		s.hangUp()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return !s.keepDraining()
	case s.isHungUp():
		// An error behind a FIN: the client was gone in order before it.
	default:
		s.tun.Abort(wire.ReasonAborted, "reading from the client: "+err.Error())
	}
	return true
}

// inputEOF tells a half-close from a full one as well as the medium can.
func (s *session) inputEOF() {
	full := !s.sock.canHalfClose()
	signs := s.sock.signs()
	switch s.sock.medium {
	case overUnix:
		full = full || signs&signHUP != 0
	case overTLS:
		full = full || signs&signFIN != 0
	}
	if full {
		s.hangUp()
		return
	}
	if s.isHungUp() {
		return // leave closes the tunnel
	}
	s.tun.CloseWrite()
	if s.sock.medium == overTLS && s.sock.rc == nil {
		// Nobody watches this connection: wait here for what FIN would say.
		s.awaitFIN()
	}
}

// awaitFIN reads beneath TLS, behind close_notify, where nothing more can come.
func (s *session) awaitFIN() {
	_, err := io.Copy(io.Discard, s.sock.raw)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		s.hangUp()
	}
}

// keepDraining prolongs the reader's deadline while the client's side is still
// taking what was written before the end.
func (s *session) keepDraining() bool {
	s.mu.Lock()
	quiet, until := s.quiet, s.until
	s.mu.Unlock()
	now := time.Now()
	if s.sock.medium == overUnix || now.After(until) || s.sock.unsent() == 0 {
		return false
	}
	return s.sock.raw.SetReadDeadline(now.Add(quiet)) == nil
}

// leave is the reader's last act.
func (s *session) leave() {
	s.mu.Lock()
	last := s.move(readerLeft)
	abnormal, hungUp := s.abnormal, s.hungUp
	s.mu.Unlock()
	if last {
		s.finish(abnormal)
	} else if hungUp {
		s.tun.Close()
	}
}

// move takes the session to its next stage and reports whether that is the end.
// s.mu is held.
func (s *session) move(e event) bool {
	before := s.stage
	s.stage = next(before, e)
	return s.stage == over && before != over
}

// finish closes the socket, once both goroutines have left.
func (s *session) finish(abnormal bool) {
	s.sock.close(abnormal)
	s.srv.forget(s.id)
}

// cut ends the session from outside: the socket is closed and the tunnel aborted.
func (s *session) cut() {
	s.mu.Lock()
	t := s.tun
	s.mu.Unlock()
	s.sock.close(true)
	if t != nil {
		t.Abort(wire.ReasonShutdown, "the server is stopping")
	}
}
