package lifecycle

// state is where a group stands.
type state uint8

const (
	// idle: parts may be added; nothing runs.
	idle state = iota
	// starting: the parts are being started, in order.
	starting
	// running: all parts are up.
	running
	// stopping: those that were started are being stopped, in reverse order.
	stopping
	// stopped: nothing of it runs; a group is not used twice.
	stopped
)

// event is what moves a group on.
type event uint8

const (
	runCalled  event = iota // Run was called
	allStarted              // the last part is up
	endWanted               // the context ended or a part failed
	allStopped              // the last part is down or was given up
)

// next is a group's life. An event that means nothing in a state leaves it.
func next(s state, e event) state {
	switch {
	case s == idle && e == runCalled:
		return starting
	case s == starting && e == allStarted:
		return running
	case (s == starting || s == running) && e == endWanted:
		return stopping
	case s == stopping && e == allStopped:
		return stopped
	}
	return s
}
