package relay

import (
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Frontend is the client's side of one tunnel, as an adapter offers it. The
// tunnel's own goroutine calls all of its methods, one at a time, so an adapter
// needs no lock among them; they run beside the adapter's reading goroutine,
// which feeds the Tunnel. Exactly one of Established and Failed is called, and
// nothing is written before it.
type Frontend interface {
	// Established answers the client's dial: its tunnel is up under id. An error
	// means that the client is gone.
	Established(id wire.ConnectionID) error
	// Failed answers the client's dial with a failure and ends the client's
	// side. Nothing is called afterwards.
	Failed(err *wire.DialError)
	// Write delivers p, in order. It blocks while the client does not read, and
	// takes ownership of p whatever it returns. Close from another goroutine is
	// not needed to unblock it: Interrupt does that.
	Write(p wire.Payload) error
	// CloseWrite tells the client that the endpoint has sent all it will send
	// while the client may go on sending. It is called only if the request said
	// CanHalfClose.
	CloseWrite() error
	// Close ends the client's side. All that was written is delivered first
	// where end is orderly; an abnormal end is shown as one where the medium can
	// say so (DESIGN 4.3). It does not block for longer than the adapter's own
	// short limits.
	Close(end End)
	// Interrupt makes a blocked or later Established, Write or CloseWrite return
	// an error soon. It may be called from any goroutine, any number of times.
	Interrupt()
}

// End says how a tunnel ended. The zero value is an orderly end.
type End struct {
	Reason wire.Reason
	// Text is for people and for peers without the "reason" extension; may be empty.
	Text string
}

// Abnormal reports whether bytes may have been lost or the end was not agreed.
func (e End) Abnormal() bool { return e.Reason != wire.ReasonNone }

// Request is a client's wish for a tunnel.
type Request struct {
	DialID   wire.DialID // the client's own, for logs; the server's for HTTP CONNECT
	Protocol string      // tcp, tcp4 or tcp6
	Address  string      // host:port, unresolved
	// CanHalfClose says that the client can tell and be told of a half-close.
	CanHalfClose bool
	// Name of the frontend for logs and metrics: "grpc" or "http-connect".
	Frontend string
}

// Outlet is the sending side of one agent link, as the link's adapter offers
// it. All methods are safe for concurrent use and none of them blocks.
type Outlet interface {
	// Extensions are those negotiated on the link.
	Extensions() wire.Extensions
	// Send queues a control packet (anything but DATA and CREDIT).
	Send(p wire.Packet)
	// Grant adds n bytes to the credit that the agent holds on id; grants that
	// have not left yet are summed. Only with extension "credit".
	Grant(id wire.ConnectionID, n int64)
	// NewSender starts the sending direction of a tunnel with that much credit;
	// credit is ignored on a link without extension "credit".
	NewSender(id wire.ConnectionID, credit int64) Sender
	// MinRTT is the shortest recent round trip to the agent, zero if unknown.
	// Windows grow by it.
	MinRTT() time.Duration
	// Kill drops the link's connection at once, whatever is queued.
	Kill(err error)
}

// Sender is one tunnel's sending direction on a link. Safe for concurrent use.
type Sender interface {
	// Write queues p behind what was written before, and blocks while the
	// tunnel's own share of the queue is full. It takes ownership of p. It
	// returns an error once the sender was aborted or the link is gone.
	Write(p wire.Payload) error
	// AddCredit adds what a CREDIT packet granted; an overflow is reported.
	AddCredit(n int64) error
	// Finish queues p (HALF_CLOSE or CLOSE_REQ) behind all data. A CLOSE_REQ
	// ends the sender; later calls do nothing.
	Finish(p wire.Packet)
	// Abort drops queued data, unblocks Write and, if p is not nil, sends p at
	// once as a control packet. It ends the sender.
	Abort(p *wire.Packet)
	// Queued is the number of bytes that have not been handed to the link's
	// stream yet; Progress counts all bytes that ever were. Together they tell
	// a stuck direction from a slow one.
	Queued() int64
	Progress() int64
}

// Router chooses a backend for a destination. Choosing is pure; it must not
// block. skip reports the peers that this dial has already tried.
type Router interface {
	Pick(address string, skip func(*Peer) bool) (*Peer, bool)
}

// Observer is told what happens, for metrics and logs. Its methods are called
// on hot paths and must not block. NopObserver can be embedded.
type Observer interface {
	// DialPending is called with +1 and -1 as pending dials come and go, once
	// per client dial (not per attempt).
	DialPending(delta int)
	// DialAttempt is called for each attempt on a backend that did not succeed.
	DialAttempt(f AttemptFailure)
	// AnswerLost is called, after TunnelOpened, when the client could not be told
	// that its tunnel is up.
	AnswerLost(t *Tunnel)
	// TunnelOpened and TunnelClosed are called once each per established tunnel.
	TunnelOpened(t *Tunnel)
	TunnelClosed(t *Tunnel, end End)
	// DialFailed is called once per client dial that ended without a tunnel.
	DialFailed(req Request, err *wire.DialError)
	// FrontendWrote is called after each write of relayed data or of a relayed
	// close to a frontend, with its duration in seconds.
	FrontendWrote(seconds float64)
	// ReaderBlocked is called with +1 when a link's reader starts to wait for a
	// tunnel of an old peer, and -1 when it goes on (full_receive_channels).
	ReaderBlocked(delta int)
	// UnknownDialResponse counts a DIAL_RSP whose dial is not pending.
	UnknownDialResponse()
}

// AttemptFailure describes one attempt that failed.
type AttemptFailure struct {
	Request Request
	Peer    *Peer
	Err     *wire.DialError
	Final   bool // no other candidate is tried
}
