package link

// WaitEnded blocks until the close given to Finish has its place in the outbox,
// behind all data that was written before, or the sender was aborted, or the
// link has ended. So whoever must route CREDIT to a sender that has been
// finished knows how long.
func (s *Sender) WaitEnded() {
	l := s.link
	l.mu.Lock()
	if l.err != nil || s.isOver() {
		l.mu.Unlock()
		return
	}
	if s.over == nil {
		s.over = make(chan struct{})
	}
	over := s.over
	l.mu.Unlock()
	select {
	case <-over:
	case <-l.done:
	}
}

func (s *Sender) isOver() bool { return s.state == senderEnded || s.state == senderAborted }

// tellOver wakes WaitEnded if the sender is over. mu is held.
func (s *Sender) tellOver() {
	if s.over != nil && s.isOver() {
		close(s.over)
		s.over = nil
	}
}
