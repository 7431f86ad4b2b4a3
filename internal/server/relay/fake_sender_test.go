package relay

import (
	"errors"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// senderLimit is how many bytes one tunnel may queue on a fake link.
const senderLimit = 128 << 10

var (
	errFakeFinished = errors.New("fake sender finished")
	errFakeAborted  = errors.New("fake sender aborted")
)

// fakeSender is a Sender that hands over at once what credit and the link allow.
// Everything is guarded by the agent's mu.
type fakeSender struct {
	agent    *fakeAgent
	id       wire.ConnectionID
	credit   int64
	queue    []wire.Payload
	queued   int64
	progress int64
	trailer  []wire.Packet
	finished bool
	closed   bool // a CLOSE_REQ is in the trailer, or has left
	aborted  bool
	lost     bool
}

func (s *fakeSender) Write(p wire.Payload) error {
	a := s.agent
	a.mu.Lock()
	defer a.mu.Unlock()
	n := int64(p.Len())
	for {
		var err error
		switch {
		case s.lost:
			err = errFakeLost
		case s.aborted:
			err = errFakeAborted
		case s.finished:
			err = errFakeFinished
		}
		if err != nil {
			p.Free()
			return err
		}
		if s.queued == 0 || s.queued+n <= senderLimit {
			break
		}
		a.cond.Wait()
	}
	s.queue = append(s.queue, p)
	s.queued += n
	s.pump()
	return nil
}

// pump hands over what may leave. a.mu is held.
func (s *fakeSender) pump() {
	for len(s.queue) > 0 && s.credit > 0 && !s.agent.stalled && !s.lost {
		head := &s.queue[0]
		p := head.Split(int(min(s.credit, 32<<10)))
		if head.Len() == 0 {
			s.queue = s.queue[1:]
		}
		n := int64(p.Len())
		s.agent.got[s.id] = append(s.agent.got[s.id], p.Bytes()...)
		p.Free()
		s.queued -= n
		s.credit -= n
		s.progress += n
	}
	if len(s.queue) == 0 && !s.aborted {
		for _, pk := range s.trailer {
			s.agent.send(pk)
		}
		s.trailer = nil
	}
	s.agent.cond.Broadcast()
}

func (s *fakeSender) AddCredit(n int64) error {
	s.agent.mu.Lock()
	defer s.agent.mu.Unlock()
	if n <= 0 {
		return errors.New("credit of nothing")
	}
	s.credit += n
	s.pump()
	return nil
}

func (s *fakeSender) Finish(pk wire.Packet) {
	s.agent.mu.Lock()
	defer s.agent.mu.Unlock()
	if s.closed || s.aborted || s.lost || s.finished && pk.Type == wire.HalfClose {
		return
	}
	s.finished = true
	s.closed = pk.Type != wire.HalfClose
	s.trailer = append(s.trailer, pk)
	s.pump()
}

func (s *fakeSender) Abort(pk *wire.Packet) {
	s.agent.mu.Lock()
	defer s.agent.mu.Unlock()
	if s.aborted || s.closed && len(s.trailer) == 0 {
		return
	}
	s.aborted = true
	s.drop(false)
	if pk != nil {
		s.agent.send(*pk)
	}
}

// drop frees what is queued. a.mu is held.
func (s *fakeSender) drop(lost bool) {
	s.lost = s.lost || lost
	for _, p := range s.queue {
		p.Free()
	}
	s.queue, s.queued, s.trailer = nil, 0, nil
	s.agent.cond.Broadcast()
}

func (s *fakeSender) Queued() int64 {
	s.agent.mu.Lock()
	defer s.agent.mu.Unlock()
	return s.queued
}

func (s *fakeSender) Progress() int64 {
	s.agent.mu.Lock()
	defer s.agent.mu.Unlock()
	return s.progress
}
