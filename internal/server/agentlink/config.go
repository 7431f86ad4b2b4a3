package agentlink

import (
	"context"
	"crypto/x509"
	"time"

	"k8s.io/klog/v2"

	"github.com/culvert-proxy/culvert/internal/server/relay"
	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Defaults of Config.
const (
	// DefaultJoinDelay is how long a second link of an old agent waits. Such an
	// agent drops a duplicate as soon as it has read its headers.
	DefaultJoinDelay = 250 * time.Millisecond
	// DefaultAuthTimeout bounds the Authenticator.
	DefaultAuthTimeout = 10 * time.Second
)

// writerGrace is how long an ended link's writer may take to return before its
// connection is closed under it.
const writerGrace = 250 * time.Millisecond

// Config describes the agents' side of a server. Zero durations mean the defaults.
type Config struct {
	ServerID string
	// Extensions are those that this server offers; none at all with
	// --disable-extensions.
	Extensions  wire.Extensions
	JoinDelay   time.Duration
	AuthTimeout time.Duration
	// Link holds the limits of every link; its stream, extensions, kill and
	// observer are set here.
	Link   link.Config
	Logger klog.Logger
}

// Router is told which links are backends, and for which destinations. Join and
// Leave are called once each for a link that becomes one, in this order.
type Router interface {
	Join(p *relay.Peer, ids wire.Identifiers)
	Leave(p *relay.Peer)
}

// Candidate is an agent that wants in.
type Candidate struct {
	AgentID       string
	Identifiers   wire.Identifiers
	Authorization []string // the header's values, untouched; secret
	// Certificates is the chain that the agent presented, its own first; verified
	// if the listener asks for one, else nil.
	Certificates []*x509.Certificate
	Address      string
}

// Authenticator decides whether an agent may connect, and with the identifiers
// that it presents. The error's text reaches the agent.
type Authenticator interface {
	Authenticate(ctx context.Context, c Candidate) error
}

// Observer is told what happens, for metrics. Its methods are called from many
// goroutines and must not block. Packets are told of through the embedded
// interface; ReceiveFailed is called at every end of a stream, with io.EOF for
// an orderly one.
type Observer interface {
	link.Observer
	// StreamOpened is called with +1 and -1 as Connect streams come and go,
	// before they are authenticated.
	StreamOpened(delta int)
	// Refused counts agents that were not let in.
	Refused(r Refusal)
	// IdentifierIgnored counts identifier values that could not be used.
	IdentifierIgnored(key string)
	// DuplicateAgentID is called when a link becomes a backend while another
	// process with the same agent ID has one.
	DuplicateAgentID(agentID string)
	// LinkReplaced counts links that a newer one of the same agent replaced.
	LinkReplaced()
}

// Refusal says why an agent was not let in.
type Refusal int

// The refusals.
const (
	RefusedMetadata Refusal = iota // headers missing, repeated or unreadable
	RefusedAuth                    // the Authenticator said no
	RefusedDraining                // this server is stopping
)

// String is the refusal's metric label.
func (r Refusal) String() string {
	switch r {
	case RefusedMetadata:
		return "metadata"
	case RefusedAuth:
		return "authentication"
	case RefusedDraining:
		return "draining"
	}
	return "unknown"
}

// NopObserver does nothing; for embedding.
type NopObserver struct{}

// Sent implements Observer.
func (NopObserver) Sent(wire.PacketType) {}

// SendFailed implements Observer.
func (NopObserver) SendFailed(wire.PacketType, error) {}

// Received implements Observer.
func (NopObserver) Received(wire.PacketType) {}

// ReceiveFailed implements Observer.
func (NopObserver) ReceiveFailed(error) {}

// StreamOpened implements Observer.
func (NopObserver) StreamOpened(int) {}

// Refused implements Observer.
func (NopObserver) Refused(Refusal) {}

// IdentifierIgnored implements Observer.
func (NopObserver) IdentifierIgnored(string) {}

// DuplicateAgentID implements Observer.
func (NopObserver) DuplicateAgentID(string) {}

// LinkReplaced implements Observer.
func (NopObserver) LinkReplaced() {}
