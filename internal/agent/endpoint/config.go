package endpoint

import (
	"time"

	"github.com/culvert-proxy/culvert/tunnel/flow"
)

// Config holds the limits. Zero means the default named beside the field.
type Config struct {
	DialTimeout        time.Duration // 5 s, name resolution included
	CloseTimeout       time.Duration // 10 s: how long the rest of a closed connection may make no progress
	HalfCloseTimeout   time.Duration // 5 min: how long a half-closed connection may be silent
	StuckTunnelTimeout time.Duration // 10 s: how long one connection may stall a link without credit, at once or in a minute

	MaxPendingDials int // 10000 per link
	MaxConnections  int // per link; 0 means no limit

	// Budget is charged for all credit; nil means one of 1 GiB of its own.
	Budget *flow.Budget
	// Window bounds the credit of each connection; flow's defaults.
	Window flow.WindowConfig
	// OldPeerQueue is how many bytes wait for one endpoint behind a server
	// without credit before its link's reader waits. 256 KiB.
	OldPeerQueue int64
}

// Times that are not configured.
const (
	// stuckFor is how long an endpoint must have taken nothing to be given up
	// soon after a close, and giveUpSoon is how soon (DESIGN 4.3: within 1 s).
	stuckFor   = 5 * time.Second
	giveUpSoon = 800 * time.Millisecond
	// quietTime is how long a lingering endpoint must have sent nothing, and
	// quietLeaving that of an agent which only waits for this before it stops.
	quietTime    = time.Second
	quietLeaving = 200 * time.Millisecond
)

// maxAddress bounds an address, in bytes: a DNS name has 253 at most.
const maxAddress = 512

func (c Config) withDefaults() Config {
	setDefault(&c.DialTimeout, 5*time.Second)
	setDefault(&c.CloseTimeout, 10*time.Second)
	setDefault(&c.HalfCloseTimeout, 5*time.Minute)
	setDefault(&c.StuckTunnelTimeout, 10*time.Second)
	setDefault(&c.MaxPendingDials, 10000)
	setDefault(&c.OldPeerQueue, 256<<10)
	setDefault(&c.Window.Max, 16<<20)
	if c.Budget == nil {
		c.Budget = flow.NewBudget(1 << 30)
	}
	return c
}

func setDefault[T ~int | ~int64](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}
