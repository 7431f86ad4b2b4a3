package relay

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/flow"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// world is a relay with everything around it faked.
type world struct {
	t      *testing.T
	relay  *Relay
	router *listRouter
	obs    *countingObserver
	budget *flow.Budget
	pool   *countingPool
	agents []*fakeAgent
}

// inWorld runs f in fake time and checks afterwards that nothing is left. That no
// goroutine is left is checked by synctest.
func inWorld(t *testing.T, cfg Config, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, router: &listRouter{}, obs: &countingObserver{}, budget: flow.NewBudget(1 << 30), pool: &countingPool{}}
		cfg.Budget = w.budget
		w.relay = New(cfg, w.router, w.obs)
		defer w.cutAll() // even if f gives up
		f(w)
		w.settled()
		w.cutAll()
		if n := len(w.relay.Snapshot().Peers); n != 0 {
			t.Errorf("%d peers are left", n)
		}
	})
}

func (w *world) cutAll() {
	for _, a := range w.agents {
		w.cut(a)
	}
}

// settled checks that no tunnel has left anything behind.
func (w *world) settled() {
	w.t.Helper()
	synctest.Wait()
	if n, m := w.relay.Tunnels(), w.relay.Pending(); n != 0 || m != 0 {
		w.t.Errorf("%d tunnels and %d pending dials are left", n, m)
	}
	select {
	case <-w.relay.Idle():
	default:
		w.t.Error("the relay is not idle")
	}
	if n := w.budget.Used(); n != 0 {
		w.t.Errorf("%d bytes of the budget are still charged", n)
	}
	if n := w.pool.out.Load(); n != 0 {
		w.t.Errorf("%d buffers were not freed", n)
	}
	w.obs.check(w.t)
	for _, a := range w.agents {
		p := a.peer
		p.mu.Lock()
		if len(p.dials)+len(p.tunnels)+len(p.unacknowledged) != 0 {
			w.t.Errorf("left on a link: dials %v, tunnels %v, unacknowledged %v", p.dials, p.tunnels, p.unacknowledged)
		}
		p.mu.Unlock()
		if n := p.Load(); n != 0 {
			w.t.Errorf("a link's load is still %d", n)
		}
	}
}

// open starts a tunnel for a new client.
func (w *world) open(opts ...func(*Request)) (*Tunnel, *fakeClient) {
	return w.openCtx(w.t.Context(), opts...)
}

func (w *world) openCtx(ctx context.Context, opts ...func(*Request)) (*Tunnel, *fakeClient) {
	req := Request{DialID: w.relay.NewDialID(), Protocol: "tcp", Address: "endpoint:80", CanHalfClose: true, Frontend: "test"}
	for _, o := range opts {
		o(&req)
	}
	c := newClient(w.t)
	return w.relay.Open(ctx, req, c), c
}

// established opens a tunnel on a and answers its dial with id and that credit.
func (w *world) established(a *fakeAgent, id wire.ConnectionID, credit int64, opts ...func(*Request)) (*Tunnel, *fakeClient) {
	w.t.Helper()
	tun, c := w.open(opts...)
	w.accept(a, id, credit)
	if err := tun.WaitEstablished(); err != nil {
		w.t.Fatal(err)
	}
	return tun, c
}

// accept answers the next dial that a is asked for.
func (w *world) accept(a *fakeAgent, id wire.ConnectionID, credit int64) wire.Packet {
	w.t.Helper()
	pk := a.take(wire.DialRequest)
	a.packet(wire.Packet{Type: wire.DialResponse, DialID: pk.DialID, ConnectionID: id, Window: credit})
	synctest.Wait()
	return pk
}

// data makes a send s on id.
func (w *world) data(a *fakeAgent, id wire.ConnectionID, s string) {
	a.packet(wire.Packet{Type: wire.Data, ConnectionID: id, Payload: w.pool.payload(s)})
}

// closed makes a say that id is closed, for that reason.
func (w *world) closed(a *fakeAgent, id wire.ConnectionID, reason wire.Reason) {
	a.packet(wire.Packet{Type: wire.CloseResponse, ConnectionID: id, Reason: reason})
}

// closeNow ends a tunnel in order.
func (w *world) closeNow(tun *Tunnel, a *fakeAgent) {
	w.t.Helper()
	tun.Close()
	a.take(wire.CloseRequest)
	w.closed(a, tun.ConnectionID(), 0)
	w.over(tun)
}

// over fails unless the tunnel is over.
func (w *world) over(tun *Tunnel) {
	w.t.Helper()
	synctest.Wait()
	if !isClosed(tun.Done()) {
		tun.mu.Lock()
		defer tun.mu.Unlock()
		w.t.Fatalf("the tunnel is not over but %v", tun.state)
	}
}

// alive fails if the tunnel is over.
func (w *world) alive(tun *Tunnel) {
	w.t.Helper()
	synctest.Wait()
	if isClosed(tun.Done()) {
		w.t.Fatalf("the tunnel is over: %+v", tun.end)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// wait lets fake time pass.
func (w *world) wait(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}

// within fails unless c is closed after more than least and at most d.
func (w *world) within(c <-chan struct{}, least, d time.Duration) {
	w.t.Helper()
	start := time.Now()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c:
		if took := time.Since(start); took < least {
			w.t.Errorf("it took only %v, want at least %v", took, least)
		}
	case <-timer.C:
		w.t.Fatalf("it did not happen within %v", d)
	}
}

func equal(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		if len(got)+len(want) > 200 {
			t.Fatalf("%s: got %d bytes, want %d (or they differ)", what, len(got), len(want))
		}
		t.Fatalf("%s: got %q, want %q", what, got, want)
	}
}

// kib is n KiB of text that does not repeat soon.
func kib(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n<<10; i++ {
		b.WriteString(time.Duration(i).String())
	}
	return b.String()[:n<<10]
}

// listRouter picks the first healthy peer that was added and is not to be skipped;
// without one, the first of the others.
type listRouter struct {
	mu    sync.Mutex
	peers []*Peer
}

func (r *listRouter) add(p *Peer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.peers = append(r.peers, p)
}

func (r *listRouter) remove(p *Peer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.peers = slices.DeleteFunc(r.peers, func(q *Peer) bool { return q == p })
}

func (r *listRouter) Pick(_ string, skip func(*Peer) bool) (*Peer, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var rest *Peer // the first of those that are a last resort
	for _, p := range r.peers {
		switch {
		case skip(p):
		case !p.Draining() && !p.Suspect():
			return p, true
		case rest == nil:
			rest = p
		}
	}
	return rest, rest != nil
}

// countingObserver counts, and knows when the counts do not fit.
type countingObserver struct {
	mu       sync.Mutex
	pending  int
	blocked  int
	opened   int
	closed   int
	unknown  int
	lost     int
	writes   int
	attempts []AttemptFailure
	failures []*wire.DialError
	onFail   func() // called for each failed attempt
	ends     []End
}

func (o *countingObserver) with(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
}

func (o *countingObserver) DialPending(d int) { o.with(func() { o.pending += d }) }
func (o *countingObserver) DialAttempt(f AttemptFailure) {
	o.with(func() { o.attempts = append(o.attempts, f) })
	if o.onFail != nil {
		o.onFail()
	}
}
func (o *countingObserver) AnswerLost(*Tunnel)    { o.with(func() { o.lost++ }) }
func (o *countingObserver) TunnelOpened(*Tunnel)  { o.with(func() { o.opened++ }) }
func (o *countingObserver) FrontendWrote(float64) { o.with(func() { o.writes++ }) }
func (o *countingObserver) ReaderBlocked(d int)   { o.with(func() { o.blocked += d }) }
func (o *countingObserver) UnknownDialResponse()  { o.with(func() { o.unknown++ }) }

func (o *countingObserver) TunnelClosed(_ *Tunnel, end End) {
	o.with(func() { o.closed++; o.ends = append(o.ends, end) })
}

func (o *countingObserver) DialFailed(_ Request, err *wire.DialError) {
	o.with(func() { o.failures = append(o.failures, err) })
}

func (o *countingObserver) check(t *testing.T) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pending != 0 || o.blocked != 0 || o.opened != o.closed {
		t.Errorf("gauges are off: pending %d, blocked %d, opened %d, closed %d", o.pending, o.blocked, o.opened, o.closed)
	}
}

// lastEnd is how the tunnel that ended last did.
func (o *countingObserver) lastEnd(t *testing.T) End {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.ends) == 0 {
		t.Fatal("no tunnel has ended")
	}
	return o.ends[len(o.ends)-1]
}
