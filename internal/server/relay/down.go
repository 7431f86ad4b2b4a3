package relay

import (
	"context"
	"errors"
	"runtime/pprof"
	"strconv"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// maxWrite is the most bytes that are given to a frontend at once: progress is
// seen between writes only, and a foreign agent may send more in one packet.
const maxWrite = 64 << 10

// run is the tunnel's goroutine. stop is closed when the dial is given up.
func (t *Tunnel) run(ctx context.Context, stop <-chan struct{}) {
	failure := t.runDial(ctx, stop)
	t.relay.dialEnded()
	if failure != nil {
		t.apply(evDialFailed, End{})
		t.fail(failure)
	} else {
		t.serve()
	}
	t.relay.forget(t)
	close(t.done)
}

// fail answers the client's dial with a failure.
func (t *Tunnel) fail(failure *wire.DialError) {
	t.err = failure
	t.front.Failed(failure)
	close(t.detached)
	close(t.answered)
	t.relay.obs.DialFailed(t.req, failure)
}

// serve is the life of an established tunnel: what comes down is delivered, then
// the client is told of the end, and then the agent's part is waited for.
func (t *Tunnel) serve() {
	if !t.enterFrontend() {
		// The client left before it was told of the tunnel: nothing was promised.
		t.apply(evBroken, End{wire.ReasonCanceled, "the client left during the dial"})
		t.fail(t.givenUp())
		return
	}
	t.label()
	t.relay.obs.TunnelOpened(t)
	err := t.front.Established(t.leg.id)
	t.leaveFrontend(err, 0)
	if err != nil {
		t.relay.obs.AnswerLost(t)
		t.err = errors.Join(ErrOver, err)
		t.apply(evBroken, End{wire.ReasonAborted, "telling the client: " + err.Error()})
	}
	close(t.answered)
	if err == nil {
		t.pump()
	}
	t.release()
	t.mu.Lock()
	for t.state != over {
		t.change.Wait()
	}
	end := t.end
	t.mu.Unlock()
	t.relay.obs.TunnelClosed(t, end)
}

// pump delivers what comes down until the queue ends or the client takes no more.
func (t *Tunnel) pump() {
	for {
		p, err := t.leg.down.Pop()
		if err != nil {
			if errors.Is(err, errEndpointDone) && t.enterFrontend() {
				t.leaveFrontend(t.front.CloseWrite(), 0)
			}
			return
		}
		for p.Len() > maxWrite {
			if !t.deliver(p.Split(maxWrite)) {
				p.Free()
				return
			}
		}
		if !t.deliver(p) {
			return
		}
	}
}

// deliver gives p to the client, and reports false if the client takes no more.
func (t *Tunnel) deliver(p wire.Payload) bool {
	if !t.enterFrontend() {
		p.Free()
		return false
	}
	n := int64(p.Len())
	start := time.Now()
	err := t.front.Write(p)
	t.relay.obs.FrontendWrote(time.Since(start).Seconds())
	return t.leaveFrontend(err, n)
}

// enterFrontend is called before each call of the frontend; after it, whoever
// changes the state knows that the call may have to be interrupted. It reports
// false if nothing is to be told to the client any more.
func (t *Tunnel) enterFrontend() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state.discards() {
		return false
	}
	t.writing = true
	return true
}

// leaveFrontend is called after each call of the frontend, with its error and the
// bytes that it delivered. It reports false if the client takes no more.
func (t *Tunnel) leaveFrontend(err error, n int64) bool {
	t.mu.Lock()
	t.writing = false
	discards := t.state.discards()
	grant := int64(0)
	if err == nil && n > 0 {
		t.bytesDown.Add(n)
		grant = t.consume(n) // nothing, if all was granted when it was thrown away
	}
	t.mu.Unlock()
	t.grant(grant)
	if err != nil && !discards {
		t.apply(evClientLost, End{wire.ReasonAborted, "writing to the client: " + err.Error()})
	}
	return err == nil && !discards
}

// release waits until the client can be told the end, and tells it. All that was
// to be delivered is delivered.
func (t *Tunnel) release() {
	t.mu.Lock()
	for !t.state.released() {
		t.change.Wait()
	}
	s, end := t.state, t.end
	t.writing = true
	t.mu.Unlock()
	start := time.Now()
	t.front.Close(end)
	if s == delivering {
		t.relay.obs.FrontendWrote(time.Since(start).Seconds())
	}
	t.mu.Lock()
	t.writing = false
	t.mu.Unlock()
	close(t.detached)
	t.apply(evDelivered, End{})
}

// label names the goroutine in profiles. It costs too much to do it for every
// dial as well; a goroutine without a name is in runDial.
func (t *Tunnel) label() {
	labels := pprof.Labels(
		"goroutine", "relay tunnel", "serverID", t.relay.cfg.ServerID, "agentID", t.leg.peer.info.AgentID,
		"dialID", strconv.FormatInt(int64(t.req.DialID), 10),
		"connectionID", strconv.FormatInt(int64(t.leg.id), 10), "endpoint", t.req.Address,
	)
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), labels))
}
