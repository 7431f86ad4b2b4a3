package link

// senderState is where the sending direction of one tunnel is in its life.
type senderState uint8

const (
	// senderOpen: Write accepts data.
	senderOpen senderState = iota
	// senderHalfClosed: no more data is accepted; a HALF_CLOSE waits behind the
	// data or has left. A close may follow.
	senderHalfClosed
	// senderClosing: no more data is accepted; a close waits behind the data.
	senderClosing
	// senderEnded: the close has left, behind all data; all calls do nothing.
	senderEnded
	// senderAborted: what was queued is dropped; all calls do nothing.
	senderAborted
)

// senderEvent is what happens to a sender.
type senderEvent uint8

const (
	eventHalfClose senderEvent = iota // Finish with HALF_CLOSE
	eventClose                        // Finish with CLOSE_REQ or CLOSE_RSP
	eventDrained                      // the last queued data was handed to the stream
	eventAbort                        // Abort
	eventLinkLost                     // the link ended
)

// next is the sender's whole life as a function. Events that a state does not
// know leave it as it is.
func next(s senderState, e senderEvent) senderState {
	switch e {
	case eventAbort, eventLinkLost:
		if s != senderEnded {
			return senderAborted
		}
	case eventHalfClose:
		if s == senderOpen {
			return senderHalfClosed
		}
	case eventClose:
		if s == senderOpen || s == senderHalfClosed {
			return senderClosing
		}
	case eventDrained:
		if s == senderClosing {
			return senderEnded
		}
	}
	return s
}
