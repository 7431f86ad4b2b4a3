package link

import (
	"slices"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// The parts of a sender that the writer uses. link.mu is held in all of them.

// push appends p to the queue. Small payloads are put together there, so that
// the number of bytes bounds what they cost.
func (s *Sender) push(p wire.Payload) {
	s.queued += int64(p.Len())
	if last := len(s.queue) - 1; last >= s.first {
		if merged, ok := s.queue[last].Merge(p); ok {
			s.queue[last] = merged
			return
		}
	}
	if s.first > 0 && len(s.queue) == cap(s.queue) {
		n := copy(s.queue, s.queue[s.first:])
		clear(s.queue[n:])
		s.queue, s.first = s.queue[:n], 0
	}
	s.queue = append(s.queue, p)
}

// unshift puts p before the queue.
func (s *Sender) unshift(p wire.Payload) {
	s.queued += int64(p.Len())
	s.queue = slices.Insert(s.queue, s.first, p)
}

// enlist puts s, which has data, where it belongs, and wakes the writer if it
// may be sent. A sender that was not waiting for its turn starts a new share;
// what it overdrew before still counts.
func (s *Sender) enlist() {
	s.remove()
	if s.credit <= 0 {
		s.link.starved.add(s)
		return
	}
	s.surplus = min(s.surplus+quantum, quantum)
	s.link.ring.add(s)
	s.link.wake()
}

// take cuts the next packet off the queue: at most MaxData bytes and the
// credit, from as many queued payloads as fit whole.
func (s *Sender) take() wire.Payload {
	limit := int(min(MaxData, s.credit))
	head := &s.queue[s.first]
	if head.Len() > limit {
		s.queued -= int64(limit)
		return head.Split(limit)
	}
	p := s.shift()
	if s.first == len(s.queue) || p.Len()+s.queue[s.first].Len() > limit {
		return p
	}
	bufs := slices.Clip(p.Buffers()) // what lies behind them is not ours
	for n := p.Len(); s.first < len(s.queue); {
		n += s.queue[s.first].Len()
		if n > limit {
			break
		}
		bufs = append(bufs, s.shift().Buffers()...)
	}
	return wire.PayloadOf(bufs)
}

// shift removes the first payload of the queue.
func (s *Sender) shift() wire.Payload {
	p := s.queue[s.first]
	s.queue[s.first] = wire.Payload{}
	s.first++
	s.queued -= int64(p.Len())
	if s.first == len(s.queue) {
		s.queue, s.first = s.queue[:0], 0
		if cap(s.queue) > queueKeep {
			s.queue = nil
		}
	}
	return p
}

// launch accounts for n bytes that go to the stream now.
func (s *Sender) launch(n int64) {
	if !s.infinite {
		s.credit -= n
	}
	s.inFlight += n
}

// landed accounts for the bytes in flight, which the stream has taken or, if
// not ok, lost.
func (s *Sender) landed(ok bool) {
	if ok {
		s.progress += s.inFlight
	}
	s.inFlight = 0
	if s.waiting > 0 {
		s.room.Broadcast()
	}
}

// reseat puts s where it belongs after data was taken from its queue.
func (s *Sender) reseat() error {
	switch {
	case s.queued == 0:
		s.remove()
		s.surplus = min(s.surplus, 0)
		return s.drained()
	case s.credit <= 0 && s.in != &s.link.starved:
		s.remove()
		s.surplus = min(s.surplus, 0)
		s.link.starved.add(s)
	}
	return nil
}

// drained moves the trailer into the outbox once no data is before it. Data
// that is in flight is ahead of the outbox in any case.
func (s *Sender) drained() error {
	if s.queued > 0 || len(s.trailer) == 0 {
		return nil
	}
	s.state = next(s.state, eventDrained)
	s.tellOver()
	trailer := s.trailer
	s.trailer = nil
	for _, p := range trailer {
		if err := s.link.enqueue(p); err != nil {
			return err
		}
	}
	return nil
}

// end drops all that is queued and ends the sender by an abort or with its link.
func (s *Sender) end(e senderEvent) {
	s.state = next(s.state, e)
	s.remove()
	for _, p := range s.queue[s.first:] {
		p.Free()
	}
	s.queue, s.first, s.queued, s.trailer = nil, 0, 0, nil
	s.room.Broadcast()
	s.tellOver()
}
