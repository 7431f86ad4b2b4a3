package relay

import "github.com/culvert-proxy/culvert/tunnel/wire"

// NopObserver does nothing; for embedding.
type NopObserver struct{}

// DialPending implements Observer.
func (NopObserver) DialPending(int) {}

// DialAttempt implements Observer.
func (NopObserver) DialAttempt(AttemptFailure) {}

// AnswerLost implements Observer.
func (NopObserver) AnswerLost(*Tunnel) {}

// TunnelOpened implements Observer.
func (NopObserver) TunnelOpened(*Tunnel) {}

// TunnelClosed implements Observer.
func (NopObserver) TunnelClosed(*Tunnel, End) {}

// DialFailed implements Observer.
func (NopObserver) DialFailed(Request, *wire.DialError) {}

// FrontendWrote implements Observer.
func (NopObserver) FrontendWrote(float64) {}

// ReaderBlocked implements Observer.
func (NopObserver) ReaderBlocked(int) {}

// UnknownDialResponse implements Observer.
func (NopObserver) UnknownDialResponse() {}
