package client

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// ErrDialClosed is wrapped by the error of a dial to which the server answered
// DIAL_CLS.
var ErrDialClosed = errors.New("the server closed the dial")

// errStreamEnded is the cause where a server ends a stream in order, but too
// early.
var errStreamEnded = errors.New("the server ended the stream")

// AnswerError holds the text with which the server answered a dial, or ended a
// connection.
type AnswerError struct{ Text string }

// Error is that text.
func (e *AnswerError) Error() string { return e.Text }

// EndError says that a connection ended abnormally: bytes of either direction
// may be missing. Read returns it after the bytes that arrived, inside a
// *net.OpError. If the endpoint reset the connection it is syscall.ECONNRESET
// to errors.Is and errors.As.
type EndError struct {
	// Reason is wire.ReasonLinkLost if the stream to the server ended without a
	// word, wire.ReasonOther if the server gave only a text.
	Reason wire.Reason
	Err    error // may be nil
}

// Error names the reason and the cause.
func (e *EndError) Error() string {
	word := e.Reason.String()
	if e.Err == nil || e.Err.Error() == word {
		return "tunnel ended abnormally: " + word
	}
	return "tunnel ended abnormally: " + word + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *EndError) Unwrap() error { return e.Err }

// endError is the error of an end that a CLOSE_RSP told, nil for an orderly one.
// Servers without the extension "reason" can tell by the text only.
func endError(reason wire.Reason, text string) error {
	if reason == wire.ReasonNone && text == "" {
		return nil
	}
	e := &EndError{Reason: reason}
	if reason == wire.ReasonNone {
		e.Reason = wire.ReasonOther
	}
	if text != "" {
		e.Err = &AnswerError{text}
	}
	if reason == wire.ReasonReset {
		e.Err = fmt.Errorf("%s: %w", text, syscall.ECONNRESET)
		if text == "" {
			e.Err = syscall.ECONNRESET
		}
	}
	return e
}

// dialError makes the error of a dial to address.
func dialError(reason wire.Reason, address string, cause error) *wire.DialError {
	return &wire.DialError{Reason: reason, Err: fmt.Errorf("dial %s: %w", address, cause)}
}

// opError gives an error of Read, Write or Close the form that net's have.
func (c *Conn) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}
