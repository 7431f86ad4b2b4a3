package flow

import "sync/atomic"

// Budget is a byte budget for a whole process: the sum of all credit that its
// tunnels have granted or hold data for. Safe for concurrent use.
//
// It is never exceeded by windows that grow. New tunnels get their minimum even
// when nothing is left, because a tunnel without credit is dead: so at most
// limit + (tunnels x their minimum) bytes are charged.
type Budget struct {
	// Fixed after construction.
	limit int64

	// Atomic.
	used atomic.Int64
}

// NewBudget returns a budget of limit bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Shares of what is left of a budget that one charge may take: a new window is
// full as long as 64 of them would fit, then shrinks with what is left; a
// growing one takes a quarter at most, so that something is left for the next.
const (
	initialShare = 64
	growShare    = 4
)

// Initial charges an initial window and returns its size in bytes: high while
// the budget has plenty left, less as it fills, and never less than low.
func (b *Budget) Initial(low, high int64) int64 {
	low = max(low, 0)
	for {
		used := b.used.Load()
		n := max(low, min(high, (b.limit-used)/initialShare))
		if b.used.CompareAndSwap(used, used+n) {
			return n
		}
	}
}

// Grow charges up to want bytes, as many as the budget can spare, and returns
// how many: between 0 and want.
func (b *Budget) Grow(want int64) int64 {
	for {
		used := b.used.Load()
		n := min(want, (b.limit-used)/growShare)
		if n <= 0 {
			return 0
		}
		if b.used.CompareAndSwap(used, used+n) {
			return n
		}
	}
}

// scarce reports whether so little is left that windows that are larger than
// they need to be should shrink.
func (b *Budget) scarce() bool { return b.limit-b.used.Load() < b.limit/4 }

// Return gives n bytes back that Initial or Grow charged.
func (b *Budget) Return(n int64) { b.used.Add(-n) }

// Used is the number of bytes charged now.
func (b *Budget) Used() int64 { return b.used.Load() }

// Limit is the budget's size in bytes.
func (b *Budget) Limit() int64 { return b.limit }
