package frontgrpc

import (
	"time"

	"google.golang.org/grpc/mem"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// The public client library loses DATA that arrives before its caller has
// registered the connection, and answers it with a CLOSE_REQ that looks like a
// close (DESIGN 4.3). So for a client without extensions that has sent nothing
// yet the first chunk travels alone, and a CLOSE_REQ soon after it means that it
// was lost.
//
// A client that really closes within that time, having sent nothing, cannot be
// told from one that lost the chunk: it gets the chunk again, and its Close takes
// the ten seconds that the library waits for an answer.
const (
	// quietTime is how long the client must be quiet before more is sent.
	quietTime = 20 * time.Millisecond
	// reportTime is how long after the chunk a CLOSE_REQ is a report of loss.
	reportTime = 50 * time.Millisecond
	// maxResends is how often the chunk is sent again.
	maxResends = 5
)

// firstBytes is a session's state under the rule. Guarded by the session's mu.
type firstBytes struct {
	applies bool // fixed after construction
	stage   lossStage
	chunk   mem.BufferSlice // while it may have to be sent again
	sent    time.Time       // the last time
	resends int
	wake    chan struct{} // closed when the rule is over; whoever waits to send listens
	timer   *time.Timer   // ends the rule when reports would have come
}

// on moves the rule on, and lets go of the chunk when it is over.
func (f *firstBytes) on(e lossEvent) {
	f.stage = f.stage.next(e)
	if f.stage != passed || f.wake == nil {
		return
	}
	f.chunk.Free()
	f.chunk = nil
	if f.timer != nil {
		f.timer.Stop()
	}
	close(f.wake)
	f.wake = nil
}

// wait is how long nothing else may be sent yet.
func (f *firstBytes) wait(now time.Time) time.Duration {
	if f.stage != held {
		return 0
	}
	left := quietTime - now.Sub(f.sent)
	if left > 0 {
		return left
	}
	f.on(quietOver)
	return 0
}

// sendFirst sends the beginning of p alone, if the rule asks for it, and takes it
// out of p.
func (s *session) sendFirst(p *wire.Payload) error {
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	s.mu.Lock()
	if !s.first.applies || s.first.stage != silent {
		s.mu.Unlock()
		return nil
	}
	f := &s.first
	f.on(chunkSent)
	head := p.Split(maxData)
	f.chunk = head.Buffers()
	f.sent = time.Now()
	f.wake = make(chan struct{})
	s.mu.Unlock()
	err := s.sendChunk()
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.stage != passed {
		f.timer = time.AfterFunc(reportTime, s.reportsDue)
	}
	return err
}

// sendChunk sends the kept chunk, unless it was let go. sendMu is held.
func (s *session) sendChunk() error {
	s.mu.Lock()
	chunk := s.first.chunk
	chunk.Ref()
	s.mu.Unlock()
	if chunk == nil {
		return nil
	}
	p := wire.PayloadOf(chunk)
	defer p.Free()
	return s.send(wire.Packet{Type: wire.Data, ConnectionID: s.conn, Payload: p})
}

// resendLost sends the first chunk again if a CLOSE_REQ that has just come tells
// of its loss. false means that it is a close.
func (s *session) resendLost() bool {
	now := time.Now()
	s.mu.Lock()
	mayBe := s.first.stage == held || s.first.stage == watched
	s.mu.Unlock()
	if !mayBe {
		return false
	}
	s.sendMu.Lock() // nothing else is sent in between
	defer s.sendMu.Unlock()
	s.mu.Lock()
	f := &s.first
	if f.resends == maxResends || now.Sub(f.sent) > reportTime {
		f.on(reportsOver)
	}
	if f.stage != held && f.stage != watched {
		s.mu.Unlock()
		return false
	}
	f.on(lossReported)
	f.resends++
	f.sent = now
	s.mu.Unlock()
	_ = s.sendChunk() // a stream that fails ends the reader too
	return true
}

// reportsDue runs on the timer.
func (s *session) reportsDue() {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &s.first
	if f.stage == passed {
		return
	}
	if left := reportTime - time.Since(f.sent); left > 0 {
		f.timer.Reset(left)
		return
	}
	f.on(reportsOver)
}

// spoke notes that the client has sent data.
func (s *session) spoke() {
	s.mu.Lock()
	if s.first.stage != passed {
		s.first.on(clientSpoke)
	}
	s.mu.Unlock()
}

// turn waits until something other than the first chunk may be sent, and takes
// sendMu. On an error it is not taken.
func (s *session) turn() error {
	for {
		s.sendMu.Lock()
		s.mu.Lock()
		wait := s.first.wait(time.Now())
		if wait <= 0 {
			s.first.on(moreSent)
			s.mu.Unlock()
			return nil
		}
		wake := s.first.wake
		s.mu.Unlock()
		s.sendMu.Unlock()
		if err := s.pause(wait, wake); err != nil {
			return err
		}
	}
}

// pause waits for d or wake; the error is that of a stream that ended meanwhile.
func (s *session) pause(d time.Duration, wake <-chan struct{}) error {
	t := time.NewTimer(d)
	defer t.Stop()
	ctx := s.stream.Context()
	select {
	case <-t.C:
	case <-wake:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
