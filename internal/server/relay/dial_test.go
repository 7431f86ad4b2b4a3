package relay

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// fail makes a answer the next dial that it is asked for with a failure.
func (w *world) fail(a *fakeAgent, reason wire.Reason, text string) {
	w.t.Helper()
	pk := a.take(wire.DialRequest)
	if !a.ext.Has(wire.ExtReason) {
		reason = 0
	}
	a.packet(wire.Packet{Type: wire.DialResponse, DialID: pk.DialID, Error: text, Reason: reason})
	synctest.Wait()
}

// wantFailed checks the client's one answer.
func wantFailed(t *testing.T, tun *Tunnel, c *fakeClient, reason wire.Reason, text string) {
	t.Helper()
	synctest.Wait()
	err := c.failed()
	if err == nil {
		t.Fatal("the client has no answer")
	}
	if err.Reason != reason || text != "" && err.Error() != text {
		t.Fatalf("the client was told %v %q, want %v %q", err.Reason, err.Error(), reason, text)
	}
	var asDial *wire.DialError
	if got := tun.WaitEstablished(); !errors.As(got, &asDial) || asDial != err {
		t.Errorf("WaitEstablished: %v", got)
	}
	if !isClosed(tun.Done()) || !isClosed(tun.Detached()) || c.told() != nil {
		t.Error("a failed tunnel is not over, or its client was told more than once")
	}
	p := wire.PayloadBytes([]byte("late"))
	if tun.Write(p) == nil {
		t.Error("a failed tunnel takes data")
	}
}

func TestDialRequestSaysWhatBothEndsCan(t *testing.T) {
	for name, c := range map[string]struct {
		ext    wire.Extensions
		half   bool
		window int64
	}{
		"new agent":  {newAgent, true, 256 << 10},
		"old agent":  {0, false, 0},
		"half-close": {wire.ExtHalfClose, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Config{}, func(w *world) {
				a := w.attach(c.ext)
				tun, client := w.open(func(r *Request) { r.DialID = 77 })
				pk := w.accept(a, 5, 1<<20)
				if pk.DialID != 77 || pk.Protocol != "tcp" || pk.Address != "endpoint:80" || pk.CanHalfClose != c.half || pk.Window != c.window {
					t.Errorf("DIAL_REQ %+v", pk)
				}
				if err := tun.WaitEstablished(); err != nil || !tun.Established() || tun.ConnectionID() != 5 || tun.Peer() != a.peer {
					t.Errorf("established: %v, id %d", err, tun.ConnectionID())
				}
				if got := w.budget.Used(); got != c.window {
					t.Errorf("%d bytes charged to the budget, want %d", got, c.window)
				}
				w.closeNow(tun, a)
				if client.told().Abnormal() {
					t.Errorf("the end was %+v", client.told())
				}
			})
		})
	}
}

func TestHalfCloseIsNotOfferedForAClientThatCannot(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, _ := w.open(func(r *Request) { r.CanHalfClose = false })
		if w.accept(a, 1, 0).CanHalfClose {
			t.Error("DIAL_REQ offers a half-close")
		}
		w.closeNow(tun, a)
	})
}

func TestNoAgent(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		tun, c := w.open()
		wantFailed(t, tun, c, wire.ReasonNoAgent, "No agent available")
		if len(w.obs.failures) != 1 || len(w.obs.attempts) != 0 {
			t.Errorf("failures %v, attempts %v", w.obs.failures, w.obs.attempts)
		}
	})
}

func TestClientLeavesDuringTheDial(t *testing.T) {
	for name, leave := range map[string]func(*Tunnel, context.CancelFunc){
		"context":  func(_ *Tunnel, cancel context.CancelFunc) { cancel() },
		"abort":    func(tun *Tunnel, _ context.CancelFunc) { tun.Abort(wire.ReasonAborted, "") },
		"cancel":   func(tun *Tunnel, _ context.CancelFunc) { tun.Abort(wire.ReasonCanceled, "") },
		"hang-up":  func(tun *Tunnel, _ context.CancelFunc) { tun.HangUp() },
		"close":    func(tun *Tunnel, _ context.CancelFunc) { tun.Close() },
		"no cause": func(tun *Tunnel, _ context.CancelFunc) { tun.Abort(0, "") },
	} {
		for _, ext := range []wire.Extensions{0, newAgent} {
			t.Run(name+" "+ext.String(), func(t *testing.T) {
				inWorld(t, Config{}, func(w *world) {
					ctx, cancel := context.WithCancel(w.t.Context())
					defer cancel()
					a := w.attach(ext)
					w.attach(ext) // nobody else is asked
					tun, c := w.openCtx(ctx)
					id := a.take(wire.DialRequest).DialID
					leave(tun, cancel)
					if pk := a.take(wire.DialClose); pk.DialID != id {
						t.Errorf("DIAL_CLS for %d, want %d", pk.DialID, id)
					}
					wantFailed(t, tun, c, wire.ReasonCanceled, "")
					w.settled()
					// An old agent dials on; what it has got is closed again.
					a.packet(wire.Packet{Type: wire.DialResponse, DialID: id, ConnectionID: 1})
					w.data(a, 1, "banner")
					pk := a.take(wire.CloseRequest)
					if pk.ConnectionID != 1 || pk.Reason != 0 != ext.Has(wire.ExtReason) {
						t.Errorf("CLOSE_REQ %+v", pk)
					}
					a.nothing()
					w.closed(a, 1, 0)
				})
			})
		}
	}
}

// The answer and the client's farewell cross: whoever comes first, the agent's
// connection is closed and the client has its one answer.
func TestAnswerForATunnelThatIsOver(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		w.attach(newAgent) // nobody else is asked
		tun, c := w.open()
		pk := a.take(wire.DialRequest)
		tun.mu.Lock() // as Shutdown leaves it, a moment before the goroutine notices
		tun.state, tun.end = over, End{Reason: wire.ReasonShutdown}
		tun.mu.Unlock()
		a.packet(wire.Packet{Type: wire.DialResponse, DialID: pk.DialID, ConnectionID: 1})
		if pk := a.take(wire.CloseRequest); pk.ConnectionID != 1 {
			t.Errorf("CLOSE_REQ %+v", pk)
		}
		wantFailed(t, tun, c, wire.ReasonShutdown, "")
		w.closed(a, 1, 0)
	})
}

func TestLateFailureIsOnlyCounted(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(0)
		a.packet(wire.Packet{Type: wire.DialResponse, DialID: 12, Error: "too late"})
		a.nothing()
		if w.obs.unknown != 1 {
			t.Errorf("%d unknown answers counted", w.obs.unknown)
		}
	})
}

// Two clients with one dial ID, and one that was given up: no answer may reach
// the wrong one.
func TestDialIDsAreUniqueOnALink(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(0)
		same := func(r *Request) { r.DialID = 5 }
		first, _ := w.open(same)
		synctest.Wait()
		second, _ := w.open(same)
		one, two := a.take(wire.DialRequest), a.take(wire.DialRequest)
		if one.DialID != 5 || two.DialID == 5 || two.DialID <= 0 {
			t.Fatalf("dial IDs %d and %d", one.DialID, two.DialID)
		}
		first.Abort(wire.ReasonCanceled, "")
		a.take(wire.DialClose)
		third, _ := w.open(same)
		three := a.take(wire.DialRequest)
		if three.DialID == 5 {
			t.Error("the ID of a dial that may still be answered was used again")
		}
		a.packet(wire.Packet{Type: wire.DialResponse, DialID: 5, ConnectionID: 1})
		a.packet(wire.Packet{Type: wire.DialResponse, DialID: two.DialID, ConnectionID: 2})
		a.packet(wire.Packet{Type: wire.DialResponse, DialID: three.DialID, ConnectionID: 3})
		synctest.Wait()
		if second.ConnectionID() != 2 || third.ConnectionID() != 3 || first.Established() {
			t.Errorf("connections %d %d %d", first.ConnectionID(), second.ConnectionID(), third.ConnectionID())
		}
		a.take(wire.CloseRequest) // for 1
		w.closed(a, 1, 0)
		w.closeNow(second, a)
		w.closeNow(third, a)
	})
}

func TestDialIDsThatClientsMayNotChoose(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(0)
		for _, id := range []wire.DialID{0, -7} {
			tun, _ := w.open(func(r *Request) { r.DialID = id })
			if pk := w.accept(a, 1, 0); pk.DialID <= 0 {
				t.Errorf("dial ID %d was used", pk.DialID)
			}
			w.closeNow(tun, a)
		}
	})
}

func TestRecentIDsForget(t *testing.T) {
	var r recentIDs
	for i := range wire.DialID(3 * maxRecent) {
		r.add(i + 1)
		if !r.has(i + 1) {
			t.Fatalf("%d is not remembered", i+1)
		}
	}
	if r.has(2*maxRecent) || !r.has(2*maxRecent+1) || len(r.ids) != maxRecent {
		t.Error("it does not remember the latest, and only those")
	}
}

func TestUnusableConnectionIDs(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a, b := w.attach(newAgent), w.attach(newAgent)
		tun, c := w.established(a, 1, 1<<20)
		for _, id := range []wire.ConnectionID{0, 1, -1} {
			second, _ := w.open()
			w.accept(a, id, 0)
			w.accept(b, 1, 0) // the next agent is asked
			if second.Peer() != b.peer {
				t.Fatalf("connection ID %d: not established elsewhere", id)
			}
			w.closeNow(second, b)
		}
		a.nothing() // nobody closes the connection whose ID was used again
		w.data(a, 1, "still here")
		synctest.Wait()
		equal(t, "data of the first tunnel", c.data(), "still here")
		w.closeNow(tun, a)
		only, c := w.open()
		w.cut(b)
		w.accept(a, 0, 0)
		wantFailed(t, only, c, wire.ReasonProtocolError, "")
	})
}

func TestLimits(t *testing.T) {
	inWorld(t, Config{MaxPendingDials: 2, MaxTunnels: 3}, func(w *world) {
		a := w.attach(newAgent)
		one, _ := w.open()
		two, _ := w.open()
		refused, c := w.open()
		wantFailed(t, refused, c, wire.ReasonLimit, "too many pending dials")
		w.accept(a, 1, 0)
		w.accept(a, 2, 0)
		if w.relay.Tunnels() != 2 || w.relay.Pending() != 0 {
			t.Errorf("%d tunnels, %d pending", w.relay.Tunnels(), w.relay.Pending())
		}
		three, _ := w.established(a, 3, 0)
		refused, c = w.open()
		wantFailed(t, refused, c, wire.ReasonLimit, "too many tunnels")
		for _, tun := range []*Tunnel{one, two, three} {
			w.closeNow(tun, a)
		}
		again, _ := w.established(a, 4, 0)
		w.closeNow(again, a)
	})
}

func TestLoad(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, _ := w.open()
		pk := a.take(wire.DialRequest)
		if got := a.peer.Load(); got != dialWeight {
			t.Errorf("with a pending dial: %d", got)
		}
		a.packet(wire.Packet{Type: wire.DialResponse, DialID: pk.DialID, ConnectionID: 1})
		synctest.Wait()
		if got := a.peer.Load(); got != 1 || a.peer.Tunnels() != 1 {
			t.Errorf("with a tunnel: %d", got)
		}
		a.packet(wire.Packet{Type: wire.Drain})
		synctest.Wait()
		if !a.peer.Draining() {
			t.Error("DRAIN was not noticed")
		}
		w.closeNow(tun, a)
	})
}
