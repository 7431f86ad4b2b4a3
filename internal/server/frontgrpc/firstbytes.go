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
// was lost. Four things tell such a report from a close as well as can be:
//
//   - Nothing is sent in the first moment (holdTime), in which most connections
//     are registered, and a client that only wanted to see whether it gets one
//     closes it.
//   - The chunk lacks its last byte, so that a client that waits for all of it
//     does not close before the rule is over.
//   - It is sent again after a growing pause: at once it would arrive, and be
//     lost, again and again while the caller waits for a processor.
//   - On a busy machine reports take longer, so the times grow with how long
//     reports have taken lately, and with how late this process's own timers were:
//     more data behind a chunk that turns out to be lost would be a gap.
//
// A client that closes in spite of all that in the time of a report, having sent
// nothing, cannot be told from one that lost the chunk: it gets the chunk again,
// and its tunnel ends when the library gives up waiting for an answer, after ten
// seconds.
const (
	// holdTime is how long after the answer to the dial the first chunk leaves.
	holdTime = 5 * time.Millisecond
	// quietTime is how long after it the client must be quiet before more leaves.
	quietTime = 20 * time.Millisecond
	// reportTime is how long after the chunk a CLOSE_REQ is a report of loss.
	reportTime = 50 * time.Millisecond
	// growFactor is by how many times the longest delay lately the two times above
	// grow, maxGrowth by how much at most.
	growFactor = 5
	maxGrowth  = 500 * time.Millisecond
	// maxResends is how often the chunk is sent again, firstPause the pause before
	// the first time; the next ones are pauseFactor times as long each.
	maxResends  = 5
	firstPause  = 2 * time.Millisecond
	pauseFactor = 3
)

// firstBytes is a session's state under the rule. Guarded by the session's mu.
type firstBytes struct {
	pace    *pace // fixed after construction; nil if the rule does not apply
	stage   lossStage
	chunk   mem.BufferSlice // while it may have to be sent again
	at      time.Time       // when the dial was answered, then when the chunk leaves or left
	resends int
	pause   time.Duration // before the last resend
	doubt   bool          // the client closes and may have lost the chunk
	wake    chan struct{} // closed when the rule is over; whoever waits to send listens
	timer   *time.Timer   // sends again, or ends the rule
}

// grown is a time of the rule under present conditions.
func (f *firstBytes) grown(d time.Duration) time.Duration {
	return d + min(maxGrowth, growFactor*f.pace.lately())
}

// begin starts the rule; the dial is being answered.
func (f *firstBytes) begin() {
	if f.pace == nil {
		f.stage = passed
		return
	}
	f.at = time.Now()
	f.wake = make(chan struct{})
}

// on moves the rule on, and lets go of everything when it is over.
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

// wait is how long nothing may be sent yet: not the first chunk, and not what
// follows it.
func (f *firstBytes) wait(now time.Time) time.Duration {
	switch f.stage {
	case silent:
		return holdTime - now.Sub(f.at)
	case held:
		left := f.grown(quietTime) - now.Sub(f.at)
		if left <= 0 {
			f.on(quietOver)
		}
		return left
	case lost, spoken:
		return max(firstPause, f.at.Sub(now))
	}
	return 0
}

// sendFirst sends the beginning of p alone, if the rule asks for it, and takes it
// out of p.
func (s *session) sendFirst(p *wire.Payload) error {
	s.mu.Lock()
	over := s.first.stage == passed
	s.mu.Unlock()
	if over {
		return nil
	}
	if err := s.pauseUntilTurn(); err != nil {
		return err
	}
	defer s.sendMu.Unlock()
	s.mu.Lock()
	f := &s.first
	if f.stage != silent {
		s.mu.Unlock()
		return nil
	}
	f.on(chunkSent)
	head := p.Split(min(maxData, max(1, p.Len()-1)))
	f.chunk = head.Buffers()
	f.chunk.Ref()
	chunk := f.chunk
	f.at = time.Now()
	s.mu.Unlock()
	err := s.sendChunk(chunk)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case f.stage.repeats():
		f.timer = time.AfterFunc(time.Until(f.at), s.firstBytesDue)
	case f.stage != passed:
		f.timer = time.AfterFunc(f.grown(reportTime), s.firstBytesDue)
	}
	return err
}

// sendChunk sends chunk and frees it. sendMu is held.
func (s *session) sendChunk(chunk mem.BufferSlice) error {
	p := wire.PayloadOf(chunk)
	defer p.Free()
	return s.send(wire.Packet{Type: wire.Data, ConnectionID: s.conn, Payload: p})
}

// lossReported decides what a CLOSE_REQ means that has just come; true means that
// the client has lost the first chunk, which it will get again.
func (s *session) lossReported() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &s.first
	if f.stage == passed {
		return false
	}
	f.doubt = f.stage != silent
	if f.resends == maxResends || time.Since(f.at) > f.grown(reportTime) {
		f.on(ruleOver)
	}
	f.on(closeCame)
	if f.stage != lost {
		return false
	}
	f.doubt = false
	f.pace.reported(time.Since(f.at))
	f.resends++
	f.pause = max(firstPause, f.pause*pauseFactor)
	pause := f.pause
	if f.resends > 1 { // it was too soon the first time
		pause += min(maxGrowth, f.pace.lately())
	}
	f.at = time.Now().Add(pause)
	if f.timer != nil { // else the first sending is not quite over, and sets it
		f.timer.Reset(pause)
	}
	return true
}

// gapAhead reports that data would reach a client which has lost what came before
// it. It closes, so it is sent nothing more.
func (s *session) gapAhead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first.doubt
}

// spoke notes that the client has sent data.
func (s *session) spoke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &s.first
	if f.stage == passed {
		return
	}
	f.on(clientSpoke)
	if f.stage == spoken && f.timer != nil {
		f.timer.Reset(0)
	}
}

// firstBytesDue runs on the timer: it sends the chunk again or ends the rule.
func (s *session) firstBytesDue() {
	s.mu.Lock()
	f := &s.first
	if !f.stage.repeats() {
		if left := f.grown(reportTime) - time.Since(f.at); f.stage != passed && left > 0 {
			f.timer.Reset(left)
		} else {
			f.on(reportsOver)
		}
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	s.sendMu.Lock() // it is free: all others wait
	defer s.sendMu.Unlock()
	s.mu.Lock()
	if !f.stage.repeats() {
		s.mu.Unlock()
		return
	}
	chunk := f.chunk
	chunk.Ref()
	f.on(chunkSent)
	f.at = time.Now()
	if f.stage != passed {
		f.timer.Reset(f.grown(reportTime))
	}
	s.mu.Unlock()
	_ = s.sendChunk(chunk) // a stream that fails ends the reader too
}

// turn waits until something other than the first chunk may be sent, and takes
// sendMu. On an error it is not taken.
func (s *session) turn() error {
	if err := s.pauseUntilTurn(); err != nil {
		return err
	}
	s.mu.Lock()
	s.first.on(ruleOver)
	s.mu.Unlock()
	return nil
}

// pauseUntilTurn waits while nothing may be sent, and takes sendMu. On an error it
// is not taken.
func (s *session) pauseUntilTurn() error {
	for {
		s.sendMu.Lock()
		s.mu.Lock()
		wait, wake := s.first.wait(time.Now()), s.first.wake
		s.mu.Unlock()
		if wait <= 0 {
			return nil
		}
		s.sendMu.Unlock()
		if err := s.pause(wait, wake); err != nil {
			return err
		}
	}
}

// pause waits for d or wake; the error is that of a stream that ended meanwhile.
func (s *session) pause(d time.Duration, wake <-chan struct{}) error {
	began := time.Now()
	t := time.NewTimer(d)
	defer t.Stop()
	ctx := s.stream.Context()
	select {
	case <-t.C:
		s.srv.pace.late(time.Since(began) - d)
	case <-wake:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
