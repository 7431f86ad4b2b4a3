package wire

// DialError is why a dial failed, as it crosses rooms: a reason of the closed
// set and a cause for people.
type DialError struct {
	Reason Reason
	Err    error
}

// Error returns the cause's text, which is what old peers are sent.
func (e *DialError) Error() string {
	if e.Err == nil {
		return e.Reason.String()
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *DialError) Unwrap() error { return e.Err }
