package frontconnect

import "github.com/culvert-proxy/culvert/tunnel/wire"

// clientSigns is called by the watcher for what the medium tells, at any time of
// the session's life. It does not block. DESIGN 4.3.
func (s *session) clientSigns(g sign) {
	switch s.sock.medium {
	case overUnix:
		if g&(signHUP|signFail) != 0 {
			s.hangUp()
		}
	case overTCP:
		s.tcpSigns(g, false)
	case overTLS:
		s.tcpSigns(g, true)
	}
}

// tcpSigns: a failure behind a FIN that was seen before it is the answer to our
// own writes to a client that had closed; what it sent before is still good. A
// connection that is over in both directions without our doing was reset, even
// if the reader has fetched the error already.
func (s *session) tcpSigns(g sign, finIsFull bool) {
	s.mu.Lock()
	if g&signHUP != 0 && !s.shut {
		g |= signFail
	}
	finBefore := s.fin
	s.fin = s.fin || g&signFIN != 0
	t := s.tun
	s.mu.Unlock()
	switch {
	case g&signFail != 0 && !finBefore:
		if t != nil {
			t.Abort(wire.ReasonAborted, "the client's connection was reset")
		}
	case g&signFail != 0:
		s.hangUp()
	case finIsFull && g&signFIN != 0 && t != nil && t.Established():
		s.hangUp()
	}
}

// checkFIN is the reader's, right after the answer: a FIN that came during the
// dial did not cancel it, but over TLS it said that the client is gone.
func (s *session) checkFIN() {
	s.mu.Lock()
	fin := s.fin
	s.mu.Unlock()
	if fin && s.sock.medium == overTLS {
		s.hangUp()
	}
}

// hangUp notes that the client has closed both directions in order. Any
// goroutine may call it, any number of times.
func (s *session) hangUp() {
	s.mu.Lock()
	first := !s.hungUp
	s.hungUp = true
	t, left := s.tun, s.stage == inputOver
	s.mu.Unlock()
	if first && t != nil {
		s.tellHangUp(t, left)
	}
}

// tellHangUp passes a hang-up on: during the dial it cancels it; after it the
// reader goes on with what the client left behind, and closes the tunnel then.
func (s *session) tellHangUp(t tunnel, readerHasLeft bool) {
	if !t.Established() {
		t.Abort(wire.ReasonCanceled, "the client hung up during the dial")
		return
	}
	t.HangUp()
	if readerHasLeft {
		t.Close()
	}
}

func (s *session) isHungUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hungUp
}
