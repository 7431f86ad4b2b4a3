package relay

// state is where a tunnel is in its life. "Up" is from client to endpoint,
// "down" the other way.
type state uint8

const (
	// dialing: a backend is looked for or asked. The client has no answer yet.
	dialing state = iota
	// open: bytes flow both ways.
	open
	// clientDone: the client has sent its last byte and still reads.
	clientDone
	// endpointDone: the endpoint has sent its last byte and still reads.
	endpointDone
	// hungUp: the client is gone in both directions, in order; its adapter still
	// passes on what it left behind. What comes down is thrown away.
	hungUp
	// closing: the client has closed in order, or both sides have half-closed. A
	// CLOSE_REQ is behind the last byte up. What comes down is still delivered
	// until the agent has answered.
	closing
	// leaving: as closing, but the client is gone: what comes down is thrown away
	// and its adapter is released.
	leaving
	// delivering: the agent's part is over, because it said so or its link was
	// lost. What had arrived is on its way to the client; nothing goes up.
	delivering
	// over: nothing is left but to tell the client, if it is still there.
	over
)

// states is the number of states.
const states = int(over) + 1

// String is the state for the status page.
func (s state) String() string {
	switch s {
	case dialing:
		return "dialing"
	case open:
		return "open"
	case clientDone:
		return "half-closed by client"
	case endpointDone:
		return "half-closed by endpoint"
	case hungUp:
		return "client hung up"
	case closing, leaving:
		return "closing"
	case delivering:
		return "delivering the rest"
	case over:
		return "over"
	}
	return "unknown"
}

// event is what happens to a tunnel.
type event uint8

const (
	evAnswered       event = iota // the agent has dialled; the tunnel is registered
	evDialFailed                  // no backend could dial, or none is left to ask
	evClientHalf                  // the client sends no more
	evClientHungUp                // the client is gone in both directions, in order
	evClientClosed                // the client has closed in order, all its bytes are accepted
	evClientLost                  // the client was reset, cancelled, or takes no more
	evEndpointHalf                // the agent has sent HALF_CLOSE
	evEndpointClosed              // the agent has sent CLOSE_RSP
	evLinkLost                    // the agent's link has ended
	evDelivered                   // the client has everything, and was told of the end
	evBroken                      // a rule was broken, a time limit passed, or the server stops
)

// events is the number of events.
const events = int(evBroken) + 1

// next is a tunnel's whole life as a function. An event that means nothing in a
// state leaves it as it is.
func next(s state, e event) state {
	switch {
	case s == over:
		return over
	case s == dialing:
		return nextDialing(e)
	}
	switch e {
	case evBroken:
		return over
	case evEndpointClosed, evLinkLost:
		return nextAgentOver(s)
	case evEndpointHalf:
		switch s {
		case open:
			return endpointDone
		case clientDone:
			return closing
		}
	case evDelivered:
		if s == delivering {
			return over
		}
	case evClientHalf, evClientHungUp, evClientClosed, evClientLost:
		return nextClient(s, e)
	}
	return s
}

// nextDialing: a client that leaves during the dial cancels it, but one that
// only half-closes does not; its adapter says so again after the answer.
func nextDialing(e event) state {
	switch e {
	case evAnswered:
		return open
	case evDialFailed, evClientHungUp, evClientClosed, evClientLost, evBroken:
		return over
	}
	return dialing
}

// nextAgentOver: nothing will come from the agent any more.
func nextAgentOver(s state) state {
	switch s {
	case hungUp, leaving:
		return over // nobody is there to be delivered to
	}
	return delivering
}

// nextClient: the client ends its side.
func nextClient(s state, e event) state {
	switch e {
	case evClientHalf:
		switch s {
		case open:
			return clientDone
		case endpointDone:
			return closing
		case hungUp:
			return leaving // that was the last of what it left behind
		}
	case evClientHungUp:
		switch s {
		case open, endpointDone:
			return hungUp
		case clientDone, closing:
			return leaving
		case delivering:
			return over
		}
	case evClientClosed:
		switch s {
		case open, clientDone, endpointDone:
			return closing
		case hungUp:
			return leaving
		}
	case evClientLost:
		switch s {
		case closing, leaving:
			return leaving // it closed in order before: what it sent is still delivered
		}
		return over
	}
	return s
}

// discards reports whether what comes down is thrown away.
func (s state) discards() bool { return s == hungUp || s == leaving || s == over }

// released reports whether the tunnel's goroutine may tell the client the end.
func (s state) released() bool { return s == leaving || s == delivering || s == over }

// halfClosed reports whether the tunnel waits for one side only.
func (s state) halfClosed() bool { return s == clientDone || s == endpointDone }

// ending reports whether the rest goes up under the close timeout.
func (s state) ending() bool { return s == hungUp || s == closing || s == leaving }
