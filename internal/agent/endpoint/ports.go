package endpoint

import (
	"context"
	"net"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Outlet is the sending side of one link, as its adapter offers it. All methods
// are safe for concurrent use and none of them blocks or calls back.
type Outlet interface {
	// Extensions are those negotiated on the link.
	Extensions() wire.Extensions
	// Send queues a control packet (anything but DATA and CREDIT).
	Send(p wire.Packet)
	// Grant adds n bytes to the credit that the server holds on id.
	Grant(id wire.ConnectionID, n int64)
	// NewSender starts the sending direction of a connection with that much
	// credit in bytes; without extension "credit" it is ignored.
	NewSender(id wire.ConnectionID, credit int64) Sender
	// MinRTT is the shortest recent round trip to the server, zero if unknown.
	MinRTT() time.Duration
}

// Sender is one connection's sending direction on a link. Safe for concurrent use.
type Sender interface {
	// Write queues p behind what was written before, and blocks while the
	// connection's own share of the queue is full. It takes ownership of p. The
	// error says that the sender was aborted, or that the link is gone.
	Write(p wire.Payload) error
	// AddCredit adds what a CREDIT packet granted; nonsense is an error.
	AddCredit(n int64) error
	// Finish queues p behind all data. HALF_CLOSE ends the data, CLOSE_RSP ends
	// the sender; later calls do nothing.
	Finish(p wire.Packet)
	// Abort drops queued data, unblocks Write and, if p is not nil, sends p at
	// once. It ends the sender; on one that has ended it does nothing.
	Abort(p *wire.Packet)
	// WaitEnded blocks until the CLOSE_RSP given to Finish has passed all data,
	// or the sender was aborted, or the link is gone.
	WaitEnded()
	// Queued is the number of bytes that have not been handed to the stream.
	Queued() int64
}

// Dialer opens connections to endpoints; NetDialer is the real one. Errors are
// turned into reasons by ReasonOf. A connection should have CloseWrite.
type Dialer interface {
	Dial(ctx context.Context, network, address string) (net.Conn, error)
}

// Observer is told what happens, for metrics and logs. Its methods must be safe
// for concurrent use and must not block. NopObserver can be embedded.
type Observer interface {
	// DialSucceeded and DialFailed are called once per dial; a dial that the
	// server cancelled is a failure with ReasonCanceled.
	DialSucceeded(d Dial)
	DialFailed(d Dial, err *wire.DialError)
	// Opened and Closed are called once each per connection.
	Opened(c Info)
	Closed(c Info, end End)
	// ReaderBlocked is called with +1 when a link's reader starts to wait for
	// a connection behind a server without credit, and with -1 when it goes on.
	ReaderBlocked(delta int)
}

// Dial is one dial that has ended.
type Dial struct {
	DialID       wire.DialID
	ConnectionID wire.ConnectionID
	Protocol     string
	Address      string
	Took         time.Duration
	// Timeout says that the failure was a timeout, for the metric of old.
	Timeout bool
}

// End says how a connection ended. The zero value is an orderly end.
type End struct {
	Reason wire.Reason
	Text   string // for people and for servers without extension "reason"; may be empty
}

// Info describes a connection at one moment.
type Info struct {
	ConnectionID wire.ConnectionID
	DialID       wire.DialID
	Protocol     string
	Address      string // as the client asked for it
	Remote       string // what was connected to
	Since        time.Time
	State        string
	Up, Down     int64 // bytes written to the endpoint, and read from it
	UpQueued     int64 // bytes waiting for the endpoint
	DownQueued   int64 // bytes waiting for the link
	Window       int64 // credit window towards the server; 0 without extension "credit"
}

// NopObserver does nothing.
type NopObserver struct{}

// DialSucceeded implements Observer.
func (NopObserver) DialSucceeded(Dial) {}

// DialFailed implements Observer.
func (NopObserver) DialFailed(Dial, *wire.DialError) {}

// Opened implements Observer.
func (NopObserver) Opened(Info) {}

// Closed implements Observer.
func (NopObserver) Closed(Info, End) {}

// ReaderBlocked implements Observer.
func (NopObserver) ReaderBlocked(int) {}
