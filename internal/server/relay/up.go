package relay

import (
	"fmt"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// stuckTime is how long an endpoint must have taken nothing before a close does
// not wait for it any more (DESIGN 4.3).
const stuckTime = 5 * time.Second

// Write sends the client's data to the endpoint; it blocks for back-pressure, and
// until the dial is answered, and takes ownership of p. An error means that the
// tunnel takes no more; it is ErrOver or why the dial failed.
func (t *Tunnel) Write(p wire.Payload) error {
	if err := t.WaitEstablished(); err != nil {
		p.Free()
		return err
	}
	n := int64(p.Len())
	if n == 0 {
		p.Free()
		return nil
	}
	if err := t.leg.sender.Write(p); err != nil {
		return fmt.Errorf("%w: %w", ErrOver, err)
	}
	t.mu.Lock()
	t.up.accept(n, time.Now())
	t.mu.Unlock()
	return nil
}

// upload is what is known of the direction to the endpoint: enough to tell one
// that is stuck from one that is slow or idle.
type upload struct {
	accepted   int64     // bytes that the sender has taken
	acceptedAt time.Time // when it took the last of them
	mark       mark      // of the first byte that was taken for a while, then
	older      mark      // the one before, at least stuckTime older
	credits    int64     // CREDIT packets that came
	creditedAt time.Time // when the last of them came
}

// mark says that so many bytes were accepted by then.
type mark struct {
	at    time.Time
	bytes int64
}

// accept takes note of n bytes that the sender has taken.
func (u *upload) accept(n int64, now time.Time) {
	u.accepted += n
	u.acceptedAt = now
	if now.Sub(u.mark.at) >= stuckTime {
		u.older, u.mark = u.mark, mark{now, u.accepted}
	}
}

// credited takes note of a CREDIT packet.
func (u *upload) credited(now time.Time) {
	u.credits++
	u.creditedAt = now
}

// old is how many of the accepted bytes are older than stuckTime for certain.
func (u *upload) old(now time.Time) int64 {
	switch {
	case now.Sub(u.acceptedAt) >= stuckTime:
		return u.accepted
	case now.Sub(u.mark.at) >= stuckTime:
		return u.mark.bytes
	}
	return u.older.bytes
}

// looksStuck reports whether bytes have been waiting for longer than stuckTime
// while the agent granted nothing. A congested link can look the same, so that
// this is a suspicion. mu is held.
func (t *Tunnel) looksStuck(now time.Time) bool {
	return t.leg.sender.Queued() > 0 &&
		t.leg.sender.Progress() < t.up.old(now) &&
		now.Sub(t.up.creditedAt) >= stuckTime
}
