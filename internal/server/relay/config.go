package relay

import (
	"time"

	"github.com/culvert-proxy/culvert/tunnel/flow"
)

// Config holds the relay's limits. Zero values mean the defaults named here;
// sizes are in bytes.
type Config struct {
	// ServerID is for profiles.
	ServerID string
	// BackendDialTimeout bounds one attempt on one backend; 0 means no limit
	// other than DialDeadline. (The flag's default is 7 s.)
	BackendDialTimeout time.Duration
	// DialAttempts is how many backends a dial tries at most: 3.
	DialAttempts int
	// DialDeadline is for all attempts together: 29 s, since a client's own
	// limit is not on the wire (DESIGN 4.4).
	DialDeadline time.Duration
	// CloseTimeout is how long the rest of a tunnel that was closed may make no
	// progress: 10 s.
	CloseTimeout time.Duration
	// StuckTunnelTimeout is how long one tunnel of an old agent may make the
	// link's reader wait, within any minute: 10 s.
	StuckTunnelTimeout time.Duration
	// HalfCloseTimeout bounds a half-closed tunnel on which nothing flows: 5 min.
	HalfCloseTimeout time.Duration
	// MaxPendingDials bounds the dials that wait for an answer: 10000.
	MaxPendingDials int
	// MaxTunnels bounds tunnels and pending dials together; 0: no limit.
	MaxTunnels int
	// Budget is what granted credit is charged to; nil: 1 GiB of the relay's own.
	Budget *flow.Budget
	// InitialWindow is the credit that a tunnel starts with while the budget has
	// plenty: 256 KiB. MaxWindow is what it may grow to: 16 MiB.
	InitialWindow int64
	MaxWindow     int64
	// OldPeerQueue bounds what waits for one tunnel of an agent without credit:
	// 256 KiB.
	OldPeerQueue int64
}

func (c *Config) setDefaults() {
	orDefault(&c.DialAttempts, 3)
	orDefault(&c.DialDeadline, 29*time.Second)
	orDefault(&c.CloseTimeout, 10*time.Second)
	orDefault(&c.StuckTunnelTimeout, 10*time.Second)
	orDefault(&c.HalfCloseTimeout, 5*time.Minute)
	orDefault(&c.MaxPendingDials, 10000)
	orDefault(&c.InitialWindow, 256<<10)
	orDefault(&c.MaxWindow, 16<<20)
	orDefault(&c.OldPeerQueue, 256<<10)
	if c.Budget == nil {
		c.Budget = flow.NewBudget(1 << 30)
	}
	c.InitialWindow = min(c.InitialWindow, c.MaxWindow)
}

func orDefault[T ~int | ~int64](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// newWindow charges the credit that an attempt offers to the agent.
func (c *Config) newWindow() *flow.Window {
	return flow.NewWindow(c.Budget, flow.WindowConfig{Initial: c.InitialWindow, Max: c.MaxWindow})
}
