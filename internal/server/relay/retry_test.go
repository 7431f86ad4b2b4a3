package relay

import (
	"testing"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

func TestFailuresAboutTheEndpointAreFinal(t *testing.T) {
	for _, reason := range []wire.Reason{wire.ReasonRefused, wire.ReasonUnknownHost, wire.ReasonDialTimeout, wire.ReasonBadAddress, wire.ReasonProtocol, wire.ReasonOther} {
		inWorld(t, Config{}, func(w *world) {
			a, b := w.attach(newAgent), w.attach(newAgent)
			tun, c := w.open()
			w.fail(a, reason, "the agent's own words")
			wantFailed(t, tun, c, reason, "the agent's own words")
			b.nothing()
			if len(w.obs.attempts) != 1 || !w.obs.attempts[0].Final || w.obs.attempts[0].Peer != a.peer {
				t.Errorf("attempts %+v", w.obs.attempts)
			}
		})
	}
}

func TestFailuresAboutTheAgentAreTriedElsewhere(t *testing.T) {
	for _, reason := range []wire.Reason{
		wire.ReasonUnreachable, wire.ReasonTooManyFiles, wire.ReasonDNSTemporary,
		wire.ReasonPolicy, wire.ReasonShutdown, wire.ReasonLimit,
	} {
		inWorld(t, Config{}, func(w *world) {
			a, b := w.attach(newAgent), w.attach(newAgent)
			tun, _ := w.open()
			w.fail(a, reason, "not from here")
			w.accept(b, 3, 0)
			if tun.WaitEstablished() != nil || tun.Peer() != b.peer {
				t.Fatalf("%v: not established on the second agent", reason)
			}
			if len(w.obs.attempts) != 1 || w.obs.attempts[0].Final {
				t.Errorf("attempts %+v", w.obs.attempts)
			}
			w.closeNow(tun, b)
		})
	}
}

// An old agent's text is all there is to go by.
func TestOldAgentsTextsAreClassified(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a, b := w.attach(0), w.attach(0)
		tun, c := w.open()
		w.fail(a, 0, "dial tcp 10.0.0.1:80: connect: no route to host")
		w.fail(b, 0, "dial tcp 10.0.0.1:80: connect: connection refused")
		wantFailed(t, tun, c, wire.ReasonRefused, "dial tcp 10.0.0.1:80: connect: connection refused")
	})
}

func TestAtMostThreeAttempts(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		var agents []*fakeAgent
		for range 4 {
			agents = append(agents, w.attach(newAgent))
		}
		tun, c := w.open()
		for _, a := range agents[:3] {
			w.fail(a, wire.ReasonUnreachable, "no route to host")
		}
		wantFailed(t, tun, c, wire.ReasonUnreachable, "no route to host")
		agents[3].nothing()
		if n := len(w.obs.attempts); n != 3 || !w.obs.attempts[2].Final || w.obs.attempts[1].Final {
			t.Errorf("attempts %+v", w.obs.attempts)
		}
		if w.obs.writes != 0 {
			t.Error("a dial's answer counts as relayed data")
		}
	})
}

// With nobody else to ask, the agent's answer is the client's.
func TestTheOnlyAgentsFailure(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, c := w.open()
		w.fail(a, wire.ReasonUnreachable, "no route to host")
		wantFailed(t, tun, c, wire.ReasonUnreachable, "no route to host")
	})
}

func TestSilentAgentIsSuspectAndTheNextIsAsked(t *testing.T) {
	inWorld(t, Config{BackendDialTimeout: 7 * time.Second}, func(w *world) {
		a, b := w.attach(newAgent), w.attach(newAgent)
		tun, _ := w.open()
		id := a.take(wire.DialRequest).DialID
		if a.peer.Load() != dialWeight {
			t.Errorf("load is %d", a.peer.Load())
		}
		w.wait(6900 * time.Millisecond)
		b.nothing()
		if a.peer.Suspect() {
			t.Error("suspect too early")
		}
		w.wait(200 * time.Millisecond)
		if pk := a.take(wire.DialClose); pk.DialID != id {
			t.Errorf("DIAL_CLS for %d, want %d", pk.DialID, id)
		}
		if !a.peer.Suspect() || b.peer.Suspect() {
			t.Error("the silent agent is not suspect, or the other one is")
		}
		w.accept(b, 1, 0)
		if tun.Peer() != b.peer {
			t.Fatal("not established on the second agent")
		}
		// It answers after all: not suspect any more, and its connection is closed.
		a.packet(wire.Packet{Type: wire.DialResponse, DialID: id, ConnectionID: 9})
		if pk := a.take(wire.CloseRequest); pk.ConnectionID != 9 || pk.Reason != wire.ReasonAborted {
			t.Errorf("late answer: %+v", pk)
		}
		if a.peer.Suspect() || w.obs.unknown != 1 {
			t.Errorf("suspect %v, unknown answers %d", a.peer.Suspect(), w.obs.unknown)
		}
		w.closed(a, 9, 0)
		w.closeNow(tun, b)
	})
}

func TestAllAgentsSilent(t *testing.T) {
	inWorld(t, Config{BackendDialTimeout: 7 * time.Second}, func(w *world) {
		agents := []*fakeAgent{w.attach(newAgent), w.attach(0), w.attach(newAgent), w.attach(newAgent)}
		tun, c := w.open()
		w.within(tun.Done(), 21*time.Second, 21*time.Second+time.Millisecond)
		wantFailed(t, tun, c, wire.ReasonBackendTimeout, "timed out waiting for backend dial")
		for _, a := range agents[:3] {
			a.take(wire.DialRequest)
			a.take(wire.DialClose)
		}
		agents[3].nothing()
	})
}

// The client's own limit is not on the wire, so all attempts have one together.
func TestDialDeadline(t *testing.T) {
	inWorld(t, Config{BackendDialTimeout: 20 * time.Second}, func(w *world) {
		a, b := w.attach(newAgent), w.attach(newAgent)
		tun, c := w.open()
		w.within(tun.Done(), 29*time.Second, 29*time.Second+time.Millisecond)
		wantFailed(t, tun, c, wire.ReasonBackendTimeout, "timed out waiting for backend dial")
		if !a.peer.Suspect() || b.peer.Suspect() {
			t.Error("suspect is who had all its time, and only who had")
		}
		for _, x := range []*fakeAgent{a, b} {
			x.take(wire.DialRequest)
			x.take(wire.DialClose)
		}
	})
}

// Who gave the dial up between two attempts causes no second one.
func TestNoFurtherAttemptForAClientThatHasLeft(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a, b := w.attach(newAgent), w.attach(newAgent)
		tun, c := w.open()
		w.obs.onFail = func() { tun.Abort(wire.ReasonCanceled, "had enough") }
		w.fail(a, wire.ReasonUnreachable, "no route to host")
		b.nothing()
		wantFailed(t, tun, c, wire.ReasonCanceled, "had enough")
	})
}

func TestNoBackendTimeout(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, _ := w.open()
		w.wait(28 * time.Second)
		w.accept(a, 1, 0)
		if !tun.Established() || tun.DialDuration() != 28*time.Second {
			t.Fatalf("established: %v, after %v", tun.Established(), tun.DialDuration())
		}
		w.closeNow(tun, a)
	})
}

func TestAgentLostDuringTheDial(t *testing.T) {
	inWorld(t, Config{BackendDialTimeout: 7 * time.Second}, func(w *world) {
		a, b := w.attach(newAgent), w.attach(newAgent)
		tun, _ := w.open()
		a.take(wire.DialRequest)
		w.cut(a)
		w.accept(b, 1, 0) // at once
		w.closeNow(tun, b)

		tun, c := w.open()
		b.take(wire.DialRequest)
		start := time.Now()
		w.cut(b)
		wantFailed(t, tun, c, wire.ReasonBackendLost, "")
		if d := time.Since(start); d > 500*time.Millisecond {
			t.Errorf("the answer took %v", d)
		}
	})
}

func TestAgentGivesTheDialUp(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a, b := w.attach(newAgent), w.attach(newAgent)
		tun, _ := w.open()
		a.packet(wire.Packet{Type: wire.DialClose, DialID: a.take(wire.DialRequest).DialID})
		w.accept(b, 1, 0)
		a.packet(wire.Packet{Type: wire.DialClose, DialID: 4711})
		w.closeNow(tun, b)
	})
}
