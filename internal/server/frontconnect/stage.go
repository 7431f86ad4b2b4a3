package frontconnect

// stage is where a session stands between the request head and the closed
// socket. Two goroutines end it, the reader and the tunnel's; the last of them
// closes the socket.
type stage uint8

const (
	// dialing: the client waits for an answer; the reader waits for the dial.
	dialing stage = iota
	// open: the 200 was written; bytes go both ways.
	open
	// inputOver: the reader has left because the client sends no more; the
	// tunnel goes on, or has not answered yet.
	inputOver
	// draining: the tunnel is over and what it wrote is followed by the end of
	// the output; the reader throws away what still comes, so that the kernel
	// has no reason to reset the connection under bytes on their way.
	draining
	// over: both have left; the socket is closed.
	over
)

// event is what moves a session on.
type event uint8

const (
	established event = iota // the tunnel is up
	readerLeft               // the reader will not touch the socket again
	tunnelOver               // relay has called Failed or Close
)

// next is the session's life. An event that cannot happen in a stage leaves it.
func next(s stage, e event) stage {
	switch {
	case s == dialing && e == established:
		return open
	case (s == dialing || s == open) && e == readerLeft:
		return inputOver
	case (s == dialing || s == open) && e == tunnelOver:
		return draining
	case s == inputOver && e == tunnelOver, s == draining && e == readerLeft:
		return over
	}
	return s
}

// String names the stage for logs and tests.
func (s stage) String() string {
	switch s {
	case dialing:
		return "dialing"
	case open:
		return "open"
	case inputOver:
		return "input over"
	case draining:
		return "draining"
	case over:
		return "over"
	}
	return "unknown"
}
