package frontgrpc

// stage is how far the client of a stream has come.
type stage int

const (
	// fresh: nothing has been dialled.
	fresh stage = iota
	// dialing: the relay works on the dial, and the client has no answer.
	dialing
	// open: the client was told its connection ID; data may flow both ways.
	open
	// halfClosed: the client sends no more data, but still reads.
	halfClosed
	// closing: the client has closed in order, given its dial up, or broken the
	// protocol. What it sends from now on is passed over.
	closing
	// over: the stream has had its last answer.
	over
)

// event is what moves a stream from stage to stage.
type event int

const (
	dialRequested event = iota // DIAL_REQ was taken
	established                // the dial's success is being told
	writeClosed                // HALF_CLOSE was taken
	closeAccepted              // CLOSE_REQ was taken
	givenUp                    // the dial was cancelled, or the client broke the protocol
	finished                   // the last answer is being sent, or nobody is left to read it
)

// next is the stage that follows s at e. An event that has no place in s changes
// nothing: it comes too late.
func next(s stage, e event) stage {
	switch {
	case e == finished:
		return over
	case e == dialRequested && s == fresh:
		return dialing
	case e == established && s == dialing:
		return open
	case e == writeClosed && s == open:
		return halfClosed
	case e == closeAccepted && (s == open || s == halfClosed):
		return closing
	case e == givenUp && (s == dialing || s == open || s == halfClosed):
		return closing
	}
	return s
}

// listens reports whether what the client sends still matters.
func (s stage) listens() bool { return s < closing }

// takesData reports whether the client may send DATA.
func (s stage) takesData() bool { return s == open }
