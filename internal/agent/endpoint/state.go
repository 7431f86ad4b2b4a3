package endpoint

// state is where a connection is in its life. "Up" is the direction to the
// endpoint, "down" the one from it; "the queue" holds what the server has sent
// and the endpoint's socket has not taken.
type state uint8

const (
	// stateOpen: bytes flow both ways.
	stateOpen state = iota
	// stateServerDone: the server has half-closed. The queue is written, then a
	// FIN; the endpoint's bytes flow.
	stateServerDone
	// stateFinSent: the endpoint has been sent everything and a FIN; its own
	// bytes flow.
	stateFinSent
	// stateEndpointDone: the endpoint has half-closed and a HALF_CLOSE is behind
	// its data; the server's bytes flow.
	stateEndpointDone
	// stateBothDone: both sides have half-closed; the queue is written, then a
	// FIN, and a CLOSE_RSP follows.
	stateBothDone
	// stateClosing: the server has closed in order. The queue is written, then a
	// FIN and the CLOSE_RSP; the endpoint's bytes are thrown away.
	stateClosing
	// stateClosingDone: as stateClosing, and the endpoint has sent its FIN, so
	// that the socket can be closed once the queue is written.
	stateClosingDone
	// stateLingering: everything is written, CLOSE_RSP is sent and the server's
	// part is over. The socket is read and thrown away until the endpoint has
	// the rest, because closing it earlier would reset it.
	stateLingering
	// stateEndpointClosed: the endpoint's FIN counts as a full close and a
	// CLOSE_RSP is behind its data. The queue is written, then the socket closed.
	stateEndpointClosed
	// stateAnswered: as stateEndpointClosed, and the CLOSE_RSP has left.
	stateAnswered
	// stateFlushing: the socket is closed; the endpoint's last bytes and the
	// CLOSE_RSP behind them wait for the server's credit.
	stateFlushing
	// stateParting: the link is gone. What the server had sent is still written,
	// for less than a second, then the connection is reset.
	stateParting
	// stateEnded: nothing is left.
	stateEnded
)

// states is the number of states.
const states = int(stateEnded) + 1

// String is the state for the status page.
func (s state) String() string {
	switch s {
	case stateOpen:
		return "open"
	case stateServerDone, stateFinSent:
		return "half-closed by client"
	case stateEndpointDone:
		return "half-closed by endpoint"
	case stateBothDone, stateClosing, stateClosingDone, stateEndpointClosed, stateAnswered:
		return "closing"
	case stateLingering:
		return "lingering"
	case stateFlushing:
		return "flushing"
	case stateParting:
		return "parting"
	case stateEnded:
		return "ended"
	}
	return "unknown"
}

// event is what happens to a connection.
type event uint8

const (
	evHalfClose   event = iota // the server has sent HALF_CLOSE
	evClose                    // the server has sent CLOSE_REQ, an orderly one
	evAbort                    // the server aborted or broke a rule, or a limit was passed
	evLost                     // the link is gone
	evDelivered                // the queue is closed and all of it is written, with a FIN unless parting
	evWriteFailed              // the endpoint's socket takes no more
	evGiveUp                   // the endpoint has taken nothing for the close timeout
	evEOF                      // the endpoint's FIN, on a tunnel that can be half-closed
	evEOFFull                  // the endpoint's FIN, on one that cannot
	evReadFailed               // the endpoint has reset the connection, and all that arrived before is read
	evLingered                 // lingering is over
	evFlushed                  // the sender has ended: CLOSE_RSP has left behind the data, or nothing will
)

// events is the number of events.
const events = int(evFlushed) + 1

// next is a connection's whole life as a function. An event that means nothing
// in a state leaves it as it is.
func next(s state, e event) state {
	switch e {
	case evAbort:
		return stateEnded
	case evLost:
		return nextLost(s)
	case evHalfClose, evClose:
		return nextServer(s, e)
	case evDelivered:
		return nextDelivered(s)
	case evWriteFailed, evGiveUp:
		return nextStuck(s, e)
	case evEOF, evEOFFull, evReadFailed:
		return nextEndpoint(s, e)
	case evLingered:
		if s == stateLingering {
			return stateEnded
		}
	case evFlushed:
		switch s {
		case stateEndpointClosed:
			return stateAnswered
		case stateFlushing:
			return stateEnded
		}
	}
	return s
}

// nextLost: nothing can be said to the server any more. A tunnel that was closed
// in order before needs no link to end in order.
func nextLost(s state) state {
	switch s {
	case stateOpen, stateServerDone, stateEndpointDone:
		return stateParting
	case stateFinSent, stateFlushing:
		return stateEnded
	}
	return s
}

// nextServer: the server ends its side, or the whole tunnel, in order.
func nextServer(s state, e event) state {
	if e == evHalfClose {
		switch s {
		case stateOpen:
			return stateServerDone
		case stateEndpointDone:
			return stateBothDone
		}
		return s
	}
	switch s {
	case stateOpen, stateServerDone:
		return stateClosing
	case stateEndpointDone, stateBothDone:
		return stateClosingDone
	case stateFinSent:
		return stateLingering
	case stateEndpointClosed:
		return stateAnswered
	case stateFlushing:
		return stateEnded
	}
	return s
}

// nextDelivered: the endpoint has been sent everything.
func nextDelivered(s state) state {
	switch s {
	case stateServerDone:
		return stateFinSent
	case stateClosing:
		return stateLingering
	case stateBothDone, stateEndpointClosed:
		return stateFlushing
	case stateClosingDone, stateAnswered, stateParting:
		return stateEnded
	}
	return s
}

// nextStuck: the endpoint takes no more. While it may still send, a failure to
// write is not the end: what it sent before is read first, and the end of that
// tells the rest. There is no giving up while the tunnel is open.
func nextStuck(s state, e event) state {
	switch s {
	case stateEndpointDone:
		if e == evWriteFailed {
			return stateFlushing
		}
	case stateBothDone, stateEndpointClosed:
		return stateFlushing
	case stateClosing, stateClosingDone, stateAnswered, stateParting:
		return stateEnded
	}
	return s
}

// nextEndpoint: nothing more comes from the endpoint.
func nextEndpoint(s state, e event) state {
	switch s {
	case stateOpen:
		switch e {
		case evEOF:
			return stateEndpointDone
		case evEOFFull:
			return stateEndpointClosed
		}
		return stateFlushing
	case stateServerDone:
		switch e {
		case evEOF:
			return stateBothDone
		case evEOFFull:
			return stateEndpointClosed
		}
		return stateFlushing
	case stateFinSent:
		return stateFlushing
	case stateClosing:
		if e == evReadFailed {
			return stateEnded
		}
		return stateClosingDone
	case stateLingering:
		return stateEnded
	case stateParting:
		if e == evReadFailed {
			return stateEnded
		}
	}
	return s
}
