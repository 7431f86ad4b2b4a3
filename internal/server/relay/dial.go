package relay

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/flow"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// attempt is one DIAL_REQ on one link. Whoever takes it out of Peer.dials decides
// what it came to: the link's reader with an answer, the tunnel's goroutine when
// it waits no longer, or the loss of the link.
type attempt struct {
	tunnel  *Tunnel
	peer    *Peer
	id      wire.DialID
	window  *flow.Window // offered to the agent; nil without credit
	outcome chan outcome // of the tunnel, with room for one
}

// outcome is what an attempt came to.
type outcome struct {
	err      *wire.DialError // nil: the tunnel is established
	retry    bool            // another backend may do better
	unwanted bool            // the agent dialled, but the tunnel is over already
	left     bool            // the agent was not waited for any longer
}

// runDial asks backends until one has dialled (nil), or the dial has failed. stop
// is closed when the tunnel is not wanted any more.
func (t *Tunnel) runDial(ctx context.Context, stop <-chan struct{}) *wire.DialError {
	if t.refused != nil {
		return t.refused
	}
	cfg := &t.relay.cfg
	deadline := t.since.Add(cfg.DialDeadline)
	outcomes := make(chan outcome, 1)
	failure := &wire.DialError{Reason: wire.ReasonNoAgent, Err: errors.New("No agent available")} //nolint:staticcheck // the protocol's own text
	var tried []*Peer
	skip := func(p *Peer) bool { return slices.Contains(tried, p) }
	for attempts := 0; attempts < cfg.DialAttempts; {
		select {
		case <-stop:
			return t.givenUp()
		default:
		}
		peer, ok := t.relay.router.Pick(t.req.Address, skip)
		if !ok {
			break
		}
		tried = append(tried, peer)
		a := peer.ask(t, outcomes)
		if a == nil {
			continue // lost while it was chosen
		}
		attempts++
		out, givenUp := t.await(ctx, stop, a, deadline, func() bool { return attempts < cfg.DialAttempts && t.elsewhere(tried) })
		if givenUp || out.err == nil {
			return out.err
		}
		if out.unwanted {
			return t.givenUp()
		}
		failure = out.err
		final := !out.retry || attempts == cfg.DialAttempts || !time.Now().Before(deadline)
		t.relay.obs.DialAttempt(AttemptFailure{Request: t.req, Peer: peer, Err: failure, Final: final})
		if final {
			break
		}
	}
	return failure
}

// elsewhere reports whether the dial would go to a healthy backend if it was made
// now, and not to the last that was tried. One that drains and is the only one of
// its kind stays the best there is.
func (t *Tunnel) elsewhere(tried []*Peer) bool {
	before, now := tried[:len(tried)-1], tried[len(tried)-1]
	best, ok := t.relay.router.Pick(t.req.Address, func(p *Peer) bool { return slices.Contains(before, p) })
	return ok && best != now && !best.Draining() && !best.Suspect()
}

// await waits for an attempt's outcome, for as long as one backend may take. One
// that begins to drain is left if elsewhere says that there is another; else it is
// waited for, since it may well answer. givenUp says that the client, or the
// server, does not want the tunnel any more.
func (t *Tunnel) await(ctx context.Context, stop <-chan struct{}, a *attempt, deadline time.Time, elsewhere func() bool) (out outcome, givenUp bool) {
	wait := time.Until(deadline)
	limit := t.relay.cfg.BackendDialTimeout
	full := limit <= 0 || limit <= wait // the backend has all the time that is a backend's
	if full && limit > 0 {
		wait = limit
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for drained := a.peer.drained; ; drained = nil {
		select {
		case out = <-a.outcome:
			return out, false
		case <-drained:
			if elsewhere() {
				return a.leave(wire.ReasonShutdown, "the agent is leaving"), false
			}
			continue
		case <-timer.C:
			out := a.leave(wire.ReasonBackendTimeout, "timed out waiting for backend dial")
			if full && out.left {
				a.peer.suspect.Store(true)
			}
			return out, false
		case <-ctx.Done():
			t.apply(evClientLost, End{wire.ReasonCanceled, "the client gave the dial up"})
		case <-stop:
		}
		a.leave(wire.ReasonCanceled, "")
		return outcome{err: t.givenUp()}, true
	}
}

// leave ends an attempt that is waited for no longer, with a failure for which
// another backend is tried, unless it has an outcome by now.
func (a *attempt) leave(reason wire.Reason, text string) outcome {
	if !a.peer.withdraw(a) {
		return <-a.outcome
	}
	return outcome{err: &wire.DialError{Reason: reason, Err: errors.New(text)}, retry: true, left: true}
}

// givenUp is the dial error of a tunnel that was ended before it was answered.
func (t *Tunnel) givenUp() *wire.DialError {
	t.mu.Lock()
	end := t.end
	t.mu.Unlock()
	if end.Reason == wire.ReasonAborted || !end.Abnormal() {
		end.Reason = wire.ReasonCanceled
	}
	if end.Reason == wire.ReasonShutdown {
		return shutdownError(end)
	}
	if end.Text == "" {
		end.Text = end.Reason.String()
	}
	return &wire.DialError{Reason: end.Reason, Err: errors.New(end.Text)}
}

// retryable reports whether a failure is about the agent or its place in the
// network, so that another one may do better.
func retryable(r wire.Reason) bool {
	switch r {
	case wire.ReasonBackendLost, wire.ReasonBackendTimeout, wire.ReasonShutdown, wire.ReasonLimit,
		wire.ReasonCanceled, wire.ReasonUnreachable, wire.ReasonTooManyFiles, wire.ReasonDNSTemporary,
		wire.ReasonPolicy:
		return true
	}
	return false
}

// refusalOf reads a DIAL_RSP that is a failure.
func refusalOf(pk *wire.Packet, ext wire.Extensions) outcome {
	reason := wire.ReasonNone
	if ext.Has(wire.ExtReason) {
		reason = pk.Reason
	}
	text := pk.Error
	switch {
	case reason == wire.ReasonNone:
		reason = wire.ClassifyDialText(text)
	case text == "":
		text = reason.String()
	}
	return outcome{err: &wire.DialError{Reason: reason, Err: errors.New(text)}, retry: retryable(reason)}
}
