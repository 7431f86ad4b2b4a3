package wire

// Reason is the closed set of causes for which a dial fails or a tunnel ends.
// It crosses rooms inside the program, and the wire when both peers negotiated
// the extension "reason". HTTP status, metric label and log level are switches
// over it. A number that is not known is ReasonOther to its receiver.
type Reason uint32

// Why a dial failed.
const (
	ReasonNone           Reason = 0  // no failure: a dial that succeeded, an orderly close
	ReasonOther          Reason = 1  // anything that has no number of its own
	ReasonNoAgent        Reason = 2  // no backend serves this destination
	ReasonRefused        Reason = 3  // the endpoint refused the connection
	ReasonDialTimeout    Reason = 4  // the endpoint did not answer within the agent's dial timeout
	ReasonUnreachable    Reason = 5  // no route, network or host unreachable, from the agent's place
	ReasonUnknownHost    Reason = 6  // the name does not exist
	ReasonDNSTemporary   Reason = 7  // the name could not be resolved just now
	ReasonTooManyFiles   Reason = 8  // the agent is out of file descriptors
	ReasonPolicy         Reason = 9  // a destination policy refused it
	ReasonBadAddress     Reason = 10 // the address cannot be parsed
	ReasonProtocol       Reason = 11 // the network is not tcp, tcp4 or tcp6
	ReasonBackendTimeout Reason = 12 // the backend left the dial unanswered
	ReasonBackendLost    Reason = 13 // the backend's link ended while the dial was pending
	ReasonCanceled       Reason = 14 // the client gave up
	ReasonLimit          Reason = 15 // a limit on pending dials or tunnels was reached
	ReasonShutdown       Reason = 16 // the process that answers is stopping
	ReasonClientTimeout  Reason = 17 // client library only: no answer within its own limit
	ReasonTunnelClosed   Reason = 18 // client library only: the stream ended before the answer
	ReasonAlreadyDialed  Reason = 19 // client library only: a single-use tunnel was used twice
	ReasonStreamSetup    Reason = 20 // client library only: the stream could not be opened
)

// Why a tunnel ended. ReasonNone is an orderly end; all of these are abnormal.
const (
	ReasonReset            Reason = 64 // the endpoint's connection was reset or failed
	ReasonAborted          Reason = 65 // the client's side was reset or cancelled
	ReasonLinkLost         Reason = 66 // the link between server and agent ended
	ReasonStuck            Reason = 67 // it stalled its neighbours for longer than --stuck-tunnel-timeout
	ReasonCreditViolation  Reason = 68 // a peer sent more than it had been granted
	ReasonCloseTimeout     Reason = 69 // the rest could not be delivered within --close-timeout
	ReasonHalfCloseTimeout Reason = 70 // half-closed and silent for --half-close-timeout
	ReasonProtocolError    Reason = 71 // a peer broke the protocol on this tunnel
)
