package frontconnect

import (
	"time"

	"github.com/culvert-proxy/culvert/internal/server/relay"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

var _ relay.Frontend = (*session)(nil)

// Established writes the 200 line, alone in its write.
func (s *session) Established(wire.ConnectionID) error {
	s.mu.Lock()
	s.move(established)
	s.mu.Unlock()
	_, err := s.sock.conn.Write([]byte(successLine))
	return err
}

// Failed answers with the reason and ends the session.
func (s *session) Failed(err *wire.DialError) {
	if !s.isHungUp() {
		s.limitWrites()
		_, _ = s.sock.conn.Write(failure(err)) // a client that is gone needs no answer
	}
	s.end(false)
}

// Write delivers p. A client that has hung up takes nothing more, which is no
// failure of the tunnel: what it sent before is still on its way.
func (s *session) Write(p wire.Payload) error {
	if !s.spoke {
		s.spoke = true
		s.awaitAnswerRead()
	}
	err := s.srv.gather.write(&s.sock, p)
	p.Free()
	if err == nil {
		return nil
	}
	if s.sock.medium == overUnix && s.sock.signs()&signHUP != 0 {
		s.hangUp()
	}
	if s.isHungUp() && !s.isInterrupted() {
		return nil
	}
	return err
}

// answerReadWait bounds awaitAnswerRead.
const answerReadWait = 100 * time.Millisecond

// awaitAnswerRead waits, for a moment at most, until the client has taken the 200
// line out of its socket. kube-apiserver's dialler fails if one read brings it the
// line and the first words of an endpoint that speaks first. COMPAT 10.2. Only a
// Unix socket tells; over TLS the line is a record of its own.
func (s *session) awaitAnswerRead() {
	if s.sock.medium != overUnix {
		return
	}
	pause := 20 * time.Microsecond
	for left := answerReadWait; left > 0 && s.sock.unsent() > 0; left -= pause {
		time.Sleep(pause)
		pause = min(2*pause, answerReadWait/50)
	}
}

// CloseWrite tells the client that the endpoint sends no more.
func (s *session) CloseWrite() error {
	s.noteShut(s.sock.medium != overTLS)
	return s.sock.halfClose()
}

// noteShut is called before our FIN leaves.
func (s *session) noteShut(shut bool) {
	s.mu.Lock()
	s.shut = s.shut || shut
	s.mu.Unlock()
}

// Close ends the session.
func (s *session) Close(end relay.End) { s.end(end.Abnormal()) }

// Interrupt makes blocked and later writes fail.
func (s *session) Interrupt() {
	s.mu.Lock()
	s.interrupted = true
	s.mu.Unlock()
	s.sock.interruptWrites()
}

func (s *session) isInterrupted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.interrupted
}

// limitWrites bounds the session's last writes.
func (s *session) limitWrites() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.interrupted {
		_ = s.sock.raw.SetWriteDeadline(time.Now().Add(answerTimeout))
	}
}

// end is the tunnel goroutine's last act: the output ends, and the reader throws
// away the rest of the input for a bounded time, then closes; if it has left
// already, the socket is closed here.
func (s *session) end(abnormal bool) {
	s.limitWrites()
	s.noteShut(true)
	s.sock.endOutput(abnormal)
	s.mu.Lock()
	s.abnormal = abnormal
	s.quiet, s.until = s.srv.drainTimes(abnormal && s.sock.medium == overTCP)
	quiet := s.quiet
	last := s.move(tunnelOver)
	s.mu.Unlock()
	switch {
	case last:
		s.finish(abnormal)
	case abnormal && s.sock.medium == overUnix:
		s.sock.close(true) // the reader notices
	default:
		_ = s.sock.raw.SetReadDeadline(time.Now().Add(quiet))
	}
}
