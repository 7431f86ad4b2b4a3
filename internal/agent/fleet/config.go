package fleet

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/culvert-proxy/culvert/internal/agent/serverlink"
	"github.com/culvert-proxy/culvert/internal/servercounter"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Config says how a fleet behaves. Zero means the default named beside the field.
type Config struct {
	SyncInterval    time.Duration // 1 s: between attempts while a server is missing
	SyncIntervalCap time.Duration // 10 s: the same after failures, and when no more is to be found
	SyncForever     bool          // attempt also when enough servers have a link

	LameDuck     time.Duration // after Drain, how long new dials are still served; 0 means none
	DrainTimeout time.Duration // how long Drain may take in all; 0 means no bound
	Logger       klog.Logger
}

// Deps are the rooms and adapters that a fleet works with.
type Deps struct {
	Connector Connector
	Directory Directory
	// Counter says how many servers there are; less than 1 counts as 1. Call
	// Fleet.Wake when it changes.
	Counter servercounter.ServerCounter
	// Received is told what servers answer, whether Counter heeds it or not.
	Received *servercounter.Received
	Rooms    Rooms
	Observer Observer // may be nil
	// Chance returns a random number from 0 to 1, 1 excluded; math/rand/v2's
	// Float64 if nil.
	Chance func() float64
}

// Connector connects to a server; see Using for the real one.
type Connector interface {
	Connect(ctx context.Context, t serverlink.Target) (Link, error)
}

// Directory knows where servers may be.
type Directory interface {
	Targets(ctx context.Context) []serverlink.Target
}

// Link is one link; *serverlink.Link is one.
type Link interface {
	Run(ev serverlink.Events) error
	Drop()
	Drain()
	Close(ctx context.Context)
	ServerID() string
	ServerCount() int
	Extensions() wire.Extensions
	Target() serverlink.Target
	Since() time.Time
	LastReceived() time.Time
	MinRTT() time.Duration
}

// Rooms are the endpoints' connections, as far as leaving concerns them.
type Rooms interface {
	// Refuse makes later dials fail.
	Refuse()
	// WaitIdle waits until nothing is open or being dialled.
	WaitIdle(ctx context.Context) error
}

// Observer is told the numbers, for metrics. It must not block.
type Observer interface {
	Connected(links int)
	Known(servers int)
	AttemptConnected()
	AttemptDuplicate()
	AttemptFailed()
}

type nopObserver struct{}

func (nopObserver) Connected(int)     {}
func (nopObserver) Known(int)         {}
func (nopObserver) AttemptConnected() {}
func (nopObserver) AttemptDuplicate() {}
func (nopObserver) AttemptFailed()    {}

// Using is the real connector.
func Using(c *serverlink.Connector) Connector { return using{c} }

type using struct{ c *serverlink.Connector }

func (u using) Connect(ctx context.Context, t serverlink.Target) (Link, error) {
	l, err := u.c.Connect(ctx, t)
	if err != nil {
		return nil, err // not a Link that is a nil pointer
	}
	return l, nil
}
