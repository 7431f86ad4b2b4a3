package link

// senderList is a list of senders linked through themselves, so that joining
// and leaving cost no memory. A sender is in at most one list. Not safe for
// concurrent use.
type senderList struct {
	head, tail *Sender
}

func (q *senderList) empty() bool { return q.head == nil }

// add puts s at the end.
func (q *senderList) add(s *Sender) {
	s.in, s.prev, s.next = q, q.tail, nil
	if q.tail == nil {
		q.head = s
	} else {
		q.tail.next = s
	}
	q.tail = s
}

// remove takes s out of the list that it is in, if any.
func (s *Sender) remove() {
	q := s.in
	if q == nil {
		return
	}
	if s.prev == nil {
		q.head = s.next
	} else {
		s.prev.next = s.next
	}
	if s.next == nil {
		q.tail = s.prev
	} else {
		s.next.prev = s.prev
	}
	s.in, s.prev, s.next = nil, nil, nil
}

// pick returns the sender whose turn it is, nil if the list is empty: the first
// one that has not used up its share. Those before it that have get their next
// share and go to the end. No debt is deeper than MaxData, so each sender is
// passed over at most twice.
func (q *senderList) pick() *Sender {
	for s := q.head; s != nil; s = q.head {
		if s.surplus > 0 {
			return s
		}
		s.surplus += quantum
		s.remove()
		q.add(s)
	}
	return nil
}

// endAll ends every sender in the list because the link has ended.
func (q *senderList) endAll() {
	for s := q.head; s != nil; s = q.head {
		s.end(eventLinkLost)
	}
}
