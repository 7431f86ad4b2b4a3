package client

// state is how far a connection has come. next is the whole of its life.
type state int

const (
	// fresh: the stream is open and nothing was dialled.
	fresh state = iota
	// dialing: DIAL_REQ was sent, and its answer has not come.
	dialing
	// open: both sides may send.
	open
	// writeClosed: the caller has closed the writing half. HALF_CLOSE goes out
	// behind what was written.
	writeClosed
	// readClosed: the endpoint sends no more.
	readClosed
	// bothClosed: neither side sends any more, and the server has yet to say that
	// the connection is over.
	bothClosed
	// closing: the caller has closed the connection. CLOSE_REQ goes out behind
	// what was written, and what still arrives is dropped.
	closing
	// ending: the connection is over, or the dial failed. Only the stream has to
	// be ended.
	ending
	// gone: the stream has ended.
	gone
)

// event is what moves a connection on.
type event int

const (
	dialled        event = iota // DIAL_REQ is being sent
	answered                    // DIAL_RSP with a connection ID
	selfHalfClosed              // CloseWrite
	peerHalfClosed              // HALF_CLOSE
	selfClosed                  // Close
	finished                    // CLOSE_RSP, a failed dial, an abort, a broken rule
	streamLost                  // the stream has ended
)

// next is the state that follows s at e. An event that has no place in s changes
// nothing.
func next(s state, e event) state {
	switch {
	case e == streamLost:
		return gone
	case s == gone:
		return gone
	case e == finished:
		return ending
	case s == fresh && e == dialled:
		return dialing
	case s == dialing && e == answered:
		return open
	case s == open && e == selfHalfClosed:
		return writeClosed
	case s == open && e == peerHalfClosed:
		return readClosed
	case s == writeClosed && e == peerHalfClosed, s == readClosed && e == selfHalfClosed:
		return bothClosed
	case s.established() && e == selfClosed:
		return closing
	}
	return s
}

// established reports whether there is a connection that the caller may use or
// close.
func (s state) established() bool { return s >= open && s <= bothClosed }

// reads reports whether DATA may arrive for the caller.
func (s state) reads() bool { return s == open || s == writeClosed }

// status is what a connection in s is counted as.
func (s state) status() Status {
	switch {
	case s == fresh:
		return StatusCreated
	case s == dialing:
		return StatusDialing
	case s < ending:
		return StatusOK
	}
	return StatusNone
}
