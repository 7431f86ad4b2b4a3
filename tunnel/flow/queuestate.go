package flow

// queueState is where a queue is in its life.
type queueState uint8

const (
	queueOpen    queueState = iota // takes and gives items
	queueClosing                   // takes no more; gives what is left, then its error
	queueAborted                   // empty for good; gives its error
)

// queueEvent is what happens to a queue.
type queueEvent uint8

const (
	queueClose queueEvent = iota // CloseWhenEmpty
	queueAbort                   // Abort
)

// next is the state after event. A state that stays means that the event
// changes nothing, not even the error.
func (s queueState) next(event queueEvent) queueState {
	switch {
	case event == queueAbort:
		return queueAborted
	case s == queueOpen:
		return queueClosing
	}
	return s
}
