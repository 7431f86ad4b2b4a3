package endpoint

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// stagger is how long an address has before the next one is tried beside it
// (RFC 8305, section 8), at most: all must get their chance.
const stagger = 250 * time.Millisecond

// attempt is one address's outcome.
type attempt struct {
	index int
	conn  net.Conn
	err   error
}

// race connects to the first of the targets that answers. It returns when all
// its attempts have ended; those that lost are cancelled. If all fail the error
// is that of the first target.
func (d *NetDialer) race(ctx context.Context, network string, targets []netip.AddrPort) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := raceState{
		errs:    make([]error, len(targets)),
		results: make(chan attempt, len(targets)),
	}
	pause := delay(ctx, len(targets))
	timer := time.NewTimer(pause)
	defer timer.Stop()
	start := func() {
		i := r.started
		r.started++
		go func() {
			conn, err := d.connect(ctx, network, targets[i])
			r.results <- attempt{i, conn, err}
		}()
		timer.Reset(pause)
	}
	for start(); r.ended < r.started; {
		select {
		case a := <-r.results:
			r.take(a)
			if r.winner != nil {
				cancel()
			}
		case <-timer.C:
		}
		if r.winner == nil && r.started < len(targets) && ctx.Err() == nil {
			start()
		}
	}
	if r.winner != nil {
		return r.winner, nil
	}
	return nil, r.failure()
}

// delay is the time between attempts on n addresses, so that the last one is
// started when half of the time is left.
func delay(ctx context.Context, n int) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return stagger
	}
	return min(stagger, max(time.Until(deadline), 0)/2/time.Duration(n))
}

// raceState is owned by the goroutine of race.
type raceState struct {
	started, ended int
	results        chan attempt // has room for all
	errs           []error      // by target
	winner         net.Conn
}

func (r *raceState) take(a attempt) {
	r.ended++
	switch {
	case a.err != nil:
		r.errs[a.index] = a.err
	case r.winner == nil:
		r.winner = a.conn
	default:
		_ = a.conn.Close() // connected in the moment in which another one had won
	}
}

// failure is the error of the first target that has a real one; one that the
// policy refused tells less than one that was tried.
func (r *raceState) failure() error {
	var refused error
	for _, err := range r.errs {
		var policy *wire.DialError
		switch {
		case err == nil:
		case !errors.As(err, &policy):
			return err
		case refused == nil:
			refused = err
		}
	}
	return refused
}
