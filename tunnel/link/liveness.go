package link

import (
	"sync"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/flow"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// late is by how much a timer must be late to show that this process was
// stopped meanwhile, so that the peer's silence proves nothing.
const late = 2 * time.Second

// liveness is the state of pings and of the watch for silence, used only with
// extension "ping". It runs on one timer and so needs no goroutine, and a
// writer that is stuck in SendMsg cannot stop it. Times are nanoseconds since
// the link's start. Guarded by the link's mu.
type liveness struct {
	timer   *time.Timer
	due     int64 // when the timer was to fire
	resumed int64 // silence before this does not count
	nonce   uint64
	sent    int64 // when the ping with that nonce left
	waiting bool  // for its pong
}

func (v *liveness) stop() {
	if v.timer != nil {
		v.timer.Stop()
	}
}

// now is the time since the link's start in nanoseconds.
func (l *Link) now() int64 { return int64(time.Since(l.start)) }

// startLiveness starts the timer and sends a first ping, for a first MinRTT. mu
// is held.
func (l *Link) startLiveness() {
	if l.err != nil || !l.cfg.Extensions.Has(wire.ExtPing) {
		return
	}
	now := l.now()
	l.lastReceived.Store(now)
	_ = l.ping(now) // the outbox has room: nothing has been sent yet
	wait := min(l.cfg.PingIdle, l.cfg.SilentAfter)
	l.live.due = now + int64(wait)
	l.live.timer = time.AfterFunc(wait, l.tick)
}

// tick runs on the timer: it gives a silent link up, or sends the ping that is
// due, and sets the timer again.
func (l *Link) tick() {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	now := l.now()
	if now-l.live.due > int64(late) {
		l.live.resumed = now
	}
	silence := now - max(l.lastReceived.Load(), l.live.resumed)
	var err error
	if silence >= int64(l.cfg.SilentAfter) {
		err = ErrSilent
	} else {
		if now-l.lastPing.Load() >= int64(l.cfg.PingIdle) {
			err = l.ping(now)
		}
		nextPing := l.lastPing.Load() + int64(l.cfg.PingIdle) - now
		wait := min(nextPing, int64(l.cfg.SilentAfter)-silence)
		l.live.due = now + wait
		l.live.timer.Reset(time.Duration(wait))
	}
	l.mu.Unlock()
	l.killIf(err)
}

// ping queues a ping. mu is held.
func (l *Link) ping(now int64) error {
	l.lastPing.Store(now)
	return l.enqueue(wire.Packet{Type: wire.Ping})
}

// pingWhileActive sends a ping when the last one is PingActive old, because
// data flows and its windows need a fresh MinRTT. One that is still unanswered
// is waited for, but not for ever. mu is held.
func (l *Link) pingWhileActive() {
	if !l.cfg.Extensions.Has(wire.ExtPing) {
		return
	}
	now := l.now()
	age := time.Duration(now - l.lastPing.Load())
	if age < l.cfg.PingActive || l.live.waiting && age < l.cfg.PingIdle {
		return
	}
	// An outbox too full for a ping is found out by whatever filled it.
	_ = l.ping(now)
}

// stampPing gives a ping its number as it leaves, so that the outbox's own
// delay is not measured. mu is held.
func (l *Link) stampPing(p *wire.Packet) {
	l.live.nonce++
	l.live.sent, l.live.waiting = l.now(), true
	p.Nonce = l.live.nonce
}

// pong takes in the answer to the latest ping.
func (l *Link) pong(nonce uint64) {
	now := time.Now()
	l.mu.Lock()
	ours := l.live.waiting && nonce == l.live.nonce
	l.live.waiting = l.live.waiting && !ours
	sample := now.Sub(l.start) - time.Duration(l.live.sent)
	l.mu.Unlock()
	if ours {
		l.rtt.mu.Lock()
		l.rtt.Add(now, sample)
		l.rtt.mu.Unlock()
	}
}

// MinRTT is the shortest round trip of the last 10 s through the stream; if none
// was measured lately the latest, zero if none ever was. It needs extension
// "ping".
func (l *Link) MinRTT() time.Duration {
	l.rtt.mu.Lock()
	defer l.rtt.mu.Unlock()
	return l.rtt.Min(time.Now())
}

// rtt has a lock of its own: every receiver on the link asks for it often.
type rtt struct {
	mu sync.Mutex
	flow.MinRTT
}

// LastReceived is when the last packet arrived; when the link was made, if none
// has yet.
func (l *Link) LastReceived() time.Time {
	return l.start.Add(time.Duration(l.lastReceived.Load()))
}
