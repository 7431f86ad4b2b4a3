package endpoint

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// asDialError is err with its reason.
func asDialError(err error) *wire.DialError {
	var failure *wire.DialError
	if errors.As(err, &failure) {
		return failure
	}
	return &wire.DialError{Reason: ReasonOf(err), Err: err}
}

// ReasonOf classifies the failure of a dial by what the error is, never by its
// text.
func ReasonOf(err error) wire.Reason {
	var failure *wire.DialError
	var name *net.DNSError
	var address *net.AddrError
	switch {
	case err == nil:
		return wire.ReasonNone
	case errors.As(err, &failure):
		return failure.Reason
	case errors.As(err, &name):
		if name.IsNotFound {
			return wire.ReasonUnknownHost
		}
		return wire.ReasonDNSTemporary
	case errors.As(err, &address):
		return wire.ReasonBadAddress
	case errors.Is(err, context.Canceled):
		return wire.ReasonCanceled
	case is(err, syscall.ECONNREFUSED):
		return wire.ReasonRefused
	case is(err, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.ENETDOWN, syscall.EAFNOSUPPORT):
		return wire.ReasonUnreachable
	case is(err, syscall.EMFILE, syscall.ENFILE):
		return wire.ReasonTooManyFiles
	case is(err, syscall.ETIMEDOUT, os.ErrDeadlineExceeded, context.DeadlineExceeded):
		return wire.ReasonDialTimeout
	}
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		return wire.ReasonDialTimeout
	}
	return wire.ReasonOther
}

func is(err error, targets ...error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
