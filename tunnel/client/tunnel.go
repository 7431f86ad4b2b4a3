package client

import (
	"context"
	"net"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Tunnel dials endpoints through a proxy server. Safe for concurrent use.
type Tunnel interface {
	// DialContext connects to address, "host:port", from an agent's place; the
	// name is resolved there. network is tcp, tcp4 or tcp6. ctx bounds the dial
	// in every stage of it and means nothing to the connection afterwards. The
	// connection is a *Conn. Every error is a *wire.DialError; if ctx ended the
	// dial, it also wraps ctx's error.
	DialContext(ctx context.Context, network, address string) (net.Conn, error)

	// Done is closed when the tunnel has ended and nothing of it is left in the
	// background.
	Done() <-chan struct{}

	// Close ends the tunnel and returns when Done is closed. Dials fail from now
	// on and open connections are aborted; those that were closed before still
	// deliver what was written to them, within Options.CloseTimeout. It returns
	// nil.
	Close() error
}

// Defaults of Options.
const (
	DefaultDialTimeout  = 30 * time.Second
	DefaultCloseTimeout = 10 * time.Second
)

// Options are what all tunnels have in common. The zero value is good.
type Options struct {
	// Observer is told what happens; may be nil.
	Observer Observer
	// DialTimeout bounds a dial whose context does not: DefaultDialTimeout if 0.
	DialTimeout time.Duration
	// CloseTimeout bounds how long a closed connection goes on in the background
	// without progress: DefaultCloseTimeout if 0.
	CloseTimeout time.Duration
	// DisableExtensions makes the client an old one: neither half-close nor
	// reasons.
	DisableExtensions bool
}

// withDefaults fills in what is not set.
func (o Options) withDefaults() Options {
	if o.Observer == nil {
		o.Observer = nopObserver{}
	}
	if o.DialTimeout <= 0 {
		o.DialTimeout = DefaultDialTimeout
	}
	if o.CloseTimeout <= 0 {
		o.CloseTimeout = DefaultCloseTimeout
	}
	return o
}

// extensions are those that are listed to the server.
func (o Options) extensions() wire.Extensions {
	if o.DisableExtensions {
		return 0
	}
	return link.ClientExtensions
}

// Observer is told what happens, for metrics (COMPAT 5.3). Its methods are
// called from many goroutines, must not block and must not call the package.
// The ends of streams that the client brings about itself are no failures, and
// neither is io.EOF.
type Observer interface {
	// Packets and stream errors. ReceiveFailed has no packet type.
	link.Observer
	// DialFailed is called once for each dial that fails. If the server answered
	// it, err wraps an *AnswerError; if it sent DIAL_CLS, ErrDialClosed.
	DialFailed(err *wire.DialError)
	// StatusChanged is called when a connection goes from one status to another.
	StatusChanged(from, to Status)
}

// Status is what a connection is counted as.
type Status int

const (
	// StatusNone is before the first and after the last.
	StatusNone Status = iota
	// StatusCreated has a stream and has not dialled.
	StatusCreated
	// StatusDialing waits for the answer.
	StatusDialing
	// StatusOK is established, and has not ended.
	StatusOK
)

// String is the metric label of the status.
func (s Status) String() string {
	switch s {
	case StatusCreated:
		return "created"
	case StatusDialing:
		return "dialing"
	case StatusOK:
		return "ok"
	}
	return "none"
}

type nopObserver struct{}

func (nopObserver) Sent(wire.PacketType)              {}
func (nopObserver) SendFailed(wire.PacketType, error) {}
func (nopObserver) Received(wire.PacketType)          {}
func (nopObserver) ReceiveFailed(error)               {}
func (nopObserver) DialFailed(*wire.DialError)        {}
func (nopObserver) StatusChanged(_, _ Status)         {}
