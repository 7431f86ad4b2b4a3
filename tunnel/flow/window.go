package flow

import (
	"errors"
	"time"
)

// ErrViolation says that a peer sent more than it had been granted.
var ErrViolation = errors.New("peer sent more than its credit")

// WindowConfig bounds a window. All sizes are in bytes; zero means the default.
type WindowConfig struct {
	Initial int64 // 256 KiB: what a tunnel starts with while the budget has plenty
	Min     int64 // 16 KiB: what it starts with at least
	Max     int64 // 16 MiB: what it grows to at most
}

// Round trips that the arithmetic assumes.
const (
	minRoundTrip     = time.Millisecond       // shorter ones are counted as this
	unknownRoundTrip = 100 * time.Millisecond // generous: too long costs memory, too short costs speed
)

// A grant is worth a packet when 64 KiB are due, of a large window a sixteenth,
// of a small one a quarter: what waits to be granted is lost to the peer, so more
// would slow it down when the window is just large enough. It is also worth one
// when the last was a while ago: a peer with data left to send takes a long
// silence for a consumer that is stuck, and one that is slow must not look like
// that.
const (
	grantLump     = 64 << 10
	grantLarge    = 16
	grantSmall    = 4
	grantInterval = time.Second
)

// Window is the receiving side of one direction of a tunnel: it decides how
// much its peer may send. At any time size = credit the peer holds + bytes
// received and not consumed yet + bytes consumed and not granted again, and size
// is what the budget is charged with. Not safe for concurrent use: reader and
// consumer share it under a lock.
//
// It grows with the bandwidth-delay product: if in one round trip more than half
// of it was consumed, it was too small to keep the pipe full while a grant
// travels, so it becomes twice what was consumed. A slow consumer never makes it
// grow, since it consumes little.
//
// It shrinks only while the budget is scarce, and only by what is consumed and
// then not granted again: the peer keeps all credit it was ever told of.
type Window struct {
	// Fixed after construction.
	budget *Budget
	base   int64 // what it started with, and what it never falls below
	max    int64

	// Owned by the caller's lock.
	size   int64
	credit int64 // granted and not received
	held   int64 // received and not consumed
	due    int64 // consumed and not granted again

	granted  time.Time // when the last grant was made, or the first byte consumed
	epoch    time.Time // when counting began
	consumed int64     // since then
	released bool
}

// NewWindow charges an initial window to budget and returns it. Its size is the
// credit to grant the peer at the start (Size).
func NewWindow(budget *Budget, cfg WindowConfig) *Window {
	if cfg.Initial <= 0 {
		cfg.Initial = 256 << 10
	}
	if cfg.Min <= 0 {
		cfg.Min = 16 << 10
	}
	if cfg.Max <= 0 {
		cfg.Max = 16 << 20
	}
	size := budget.Initial(min(cfg.Min, cfg.Initial), cfg.Initial)
	return &Window{budget: budget, max: cfg.Max, base: size, size: size, credit: size}
}

// Size is the window in bytes.
func (w *Window) Size() int64 { return w.size }

// Received takes note of n bytes from the peer. More than it had credit for is
// ErrViolation; the window is as before then, and of no more use.
func (w *Window) Received(n int64) error {
	if n < 0 || n > w.credit {
		return ErrViolation
	}
	w.credit -= n
	w.held += n
	return nil
}

// Consumed takes note that n bytes of those received have left this process at
// time now, and returns how many bytes to grant the peer, zero most of the time;
// but a consumer that goes on, however slowly, makes a grant every second or so.
// minRTT is the shortest recent round trip to the peer, zero if it is not known.
func (w *Window) Consumed(n int64, now time.Time, minRTT time.Duration) (grant int64) {
	n = min(n, w.held)
	if n <= 0 || w.released {
		return 0
	}
	w.held -= n
	w.due += n
	w.adapt(n, now, minRTT)
	if w.granted.IsZero() {
		w.granted = now
	}
	lump := min(w.size/grantSmall, max(w.size/grantLarge, grantLump))
	if w.due == 0 || w.due < lump && now.Sub(w.granted) < grantInterval {
		return 0
	}
	w.granted = now
	grant, w.due = w.due, 0
	w.credit += grant
	return grant
}

// adapt counts n bytes and, once a round trip has passed, makes the window fit
// what was consumed in one.
func (w *Window) adapt(n int64, now time.Time, minRTT time.Duration) {
	if minRTT <= 0 {
		minRTT = unknownRoundTrip
	}
	minRTT = max(minRTT, minRoundTrip)
	if w.epoch.IsZero() {
		w.epoch = now
	}
	w.consumed += n
	elapsed := now.Sub(w.epoch)
	if elapsed < minRTT {
		return
	}
	perTrip := float64(w.consumed) * (float64(minRTT) / float64(elapsed))
	w.epoch, w.consumed = now, 0
	target := int64(min(2*perTrip, float64(w.max)))
	switch {
	case target > w.size:
		more := w.budget.Grow(target - w.size)
		w.size += more
		w.due += more
	case target < w.size/2 && w.budget.scarce():
		less := min(w.due, w.size-max(target, w.base))
		if less > 0 {
			w.size -= less
			w.due -= less
			w.budget.Return(less)
		}
	}
}

// Release gives the whole window back to the budget; what is still received or
// consumed does not matter any more. Idempotent.
func (w *Window) Release() {
	if w.released {
		return
	}
	w.released = true
	w.budget.Return(w.size)
	w.size, w.credit, w.held, w.due = 0, 0, 0, 0
}
