package endpoint

import "time"

// linger decides when a socket that was written and finished can be closed:
// when the endpoint has acknowledged everything and has then been quiet for a
// while; or, if it is never quiet, the close timeout after the acknowledgement.
// An endpoint that acknowledges nothing for the close timeout is given up. It
// knows no socket and no clock.
type linger struct {
	quiet   time.Duration
	timeout time.Duration

	until    time.Time // when to check again at the latest
	last     time.Time // when the endpoint sent something last
	progress time.Time // when it acknowledged something last
	least    int64     // the fewest bytes that were unacknowledged
	acked    time.Time // when everything was acknowledged; zero if it is not
}

// lingerVerdict is what linger.check says.
type lingerVerdict uint8

const (
	lingerOn     lingerVerdict = iota // go on until linger.until
	lingerDone                        // close
	lingerGiveUp                      // reset: the rest will not arrive
)

// lingerPoll is how often acknowledgements are looked at.
const lingerPoll = 250 * time.Millisecond

func newLinger(now time.Time, unacked int64, quiet, timeout time.Duration) *linger {
	l := &linger{quiet: quiet, timeout: timeout, last: now, progress: now, least: unacked}
	l.check(now, unacked)
	return l
}

// heard notes that the endpoint sent something.
func (l *linger) heard(now time.Time) { l.last = now }

// check looks at how many bytes are unacknowledged now.
func (l *linger) check(now time.Time, unacked int64) lingerVerdict {
	if unacked < l.least {
		l.least, l.progress = unacked, now
	}
	if unacked > 0 {
		if now.Sub(l.progress) >= l.timeout {
			return lingerGiveUp
		}
		l.until = earlier(now.Add(lingerPoll), l.progress.Add(l.timeout))
		return lingerOn
	}
	if l.acked.IsZero() {
		l.acked = now
	}
	since := l.last
	if since.Before(l.acked) {
		since = l.acked
	}
	end := earlier(since.Add(l.quiet), l.acked.Add(l.timeout))
	if !now.Before(end) {
		return lingerDone
	}
	l.until = end
	return lingerOn
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
