package relay

import (
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

const (
	// looks is how often the watch looks for progress within a time limit.
	looks = 10
	// doubtTime is how long a direction that looks stuck when it is closed has to
	// prove that it is not.
	doubtTime = 750 * time.Millisecond
	// answerShare is how many close timeouts an agent that was given everything
	// may stay silent: one is its own, for the endpoint; the rest is for its
	// answer's way behind other tunnels' data.
	answerShare = 3
)

// watch is the timer of a tunnel that has to end by itself: it is half-closed, or
// closed in order and delivering the rest. It looks for signs of progress now and
// then, and ends the tunnel when there were none for too long.
type watch struct {
	timer *time.Timer // nil until first needed
	signs int64       // that were seen
	since time.Time   // when the last of them was seen, or the watch began
	doubt bool        // the next look decides
}

// arm starts the watch as the new state asks for. mu is held.
func (t *Tunnel) arm(from, to state) {
	w := &t.watch
	switch {
	case to == over:
		if w.timer != nil {
			w.timer.Stop()
		}
		return
	case from.ending() && to.ending():
		return // goes on
	}
	now := time.Now()
	limit, _ := t.limit()
	w.signs, w.since = t.signs(), now
	w.doubt = to.ending() && t.looksStuck(now)
	first := limit / looks
	if w.doubt {
		first = min(doubtTime, t.relay.cfg.CloseTimeout)
	}
	if w.timer == nil {
		w.timer = time.AfterFunc(first, t.look)
	} else {
		w.timer.Reset(first)
	}
}

// look is the timer's function.
func (t *Tunnel) look() {
	t.mu.Lock()
	limit, cause := t.limit()
	if limit == 0 {
		t.mu.Unlock()
		return // the tunnel ended meanwhile
	}
	now := time.Now()
	w := &t.watch
	decide := w.doubt
	w.doubt = false
	if signs := t.signs(); signs != w.signs {
		w.signs, w.since = signs, now
	} else if decide || now.Sub(w.since) >= limit {
		t.mu.Unlock()
		t.apply(evBroken, cause)
		return
	}
	w.timer.Reset(min(limit/looks, limit-now.Sub(w.since)))
	t.mu.Unlock()
}

// limit is how long there may be no progress in the present state, and how the
// tunnel ends then; zero if the state has no limit. mu is held.
func (t *Tunnel) limit() (time.Duration, End) {
	cfg := &t.relay.cfg
	switch s := t.state; {
	case s.halfClosed():
		return cfg.HalfCloseTimeout, End{wire.ReasonHalfCloseTimeout, "half-closed, and nothing flows"}
	case s == delivering && !t.end.Abnormal():
		// The endpoint has sent everything and is free; only a client that lives
		// and reads slowly is waited for, and it must not lose the last bytes to a
		// pause that would have cost it none earlier.
		return max(cfg.CloseTimeout, cfg.HalfCloseTimeout), End{wire.ReasonCloseTimeout, "the client does not take the rest of the data"}
	case s == delivering:
		return cfg.CloseTimeout, End{wire.ReasonCloseTimeout, "the client does not take the rest of the data"}
	case s.ending():
		end := End{wire.ReasonCloseTimeout, "the endpoint does not take the rest of the data"}
		if t.leg.sender.Queued() > 0 {
			return cfg.CloseTimeout, end
		}
		return answerShare * cfg.CloseTimeout, end
	}
	return 0, End{}
}

// signs changes with every progress that counts in the present state. mu is held.
func (t *Tunnel) signs() int64 {
	up := t.leg.sender.Progress() + t.up.credits
	switch s := t.state; {
	case s.halfClosed():
		down := t.leg.down.Popped() + t.leg.down.Len()
		return up + t.up.accepted + down + t.bytesDown.Load()
	case s == delivering:
		return t.bytesDown.Load()
	}
	return up
}
