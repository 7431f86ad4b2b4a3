package relay

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// The answer, the data and the end may follow one another without a pause; the
// client sees them in order and whole.
func TestEndpointSpeaksFirst(t *testing.T) {
	for _, ext := range []wire.Extensions{0, newAgent} {
		inWorld(t, Config{}, func(w *world) {
			a := w.attach(ext)
			var tunnels []*Tunnel
			var clients []*fakeClient
			for i := range wire.ConnectionID(300) {
				tun, c := w.open()
				tunnels, clients = append(tunnels, tun), append(clients, c)
				pk := a.take(wire.DialRequest)
				a.packet(wire.Packet{Type: wire.DialResponse, DialID: pk.DialID, ConnectionID: i + 1})
				w.data(a, i+1, "hello ")
				w.data(a, i+1, "world")
				w.closed(a, i+1, 0)
			}
			synctest.Wait()
			for i, c := range clients {
				w.over(tunnels[i])
				equal(t, "banner", c.data(), "hello world")
				if c.told().Abnormal() {
					t.Errorf("the end was %+v", c.told())
				}
			}
			a.nothing()
		})
	}
}

func TestCreditIsGrantedAsTheClientReads(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, c := w.established(a, 1, 0)
		c.gate(true)
		w.data(a, 1, kib(100))
		w.data(a, 1, kib(100))
		if got := a.granted(1); got != 0 {
			t.Errorf("%d bytes were granted before the client read any", got)
		}
		c.gate(false)
		if got := a.granted(1); got < 100<<10 {
			t.Errorf("%d bytes were granted after the client had read 200 KiB", got)
		}
		equal(t, "data", c.data(), kib(100)+kib(100))
		w.closeNow(tun, a)
	})
}

func TestWindowGrowsWithinTheBudget(t *testing.T) {
	inWorld(t, Config{MaxWindow: 1 << 20}, func(w *world) {
		a := w.attach(newAgent)
		tun, c := w.established(a, 1, 0)
		sent := int64(0)
		piece := kib(32)
		for range 10 { // 512 KiB in each round trip of a millisecond
			for range 16 {
				w.data(a, 1, piece)
				if sent += int64(len(piece)); sent > 256<<10+a.granted(1) {
					t.Fatal("too little was granted")
				}
			}
			w.wait(time.Millisecond)
		}
		if got := w.budget.Used(); got <= 256<<10 || got > 1<<20 {
			t.Errorf("the window is %d bytes", got)
		}
		if len(c.data()) != 5<<20 {
			t.Errorf("%d bytes were let through", len(c.data()))
		}
		w.closeNow(tun, a)
	})
}

func TestCreditViolationEndsThatTunnelOnly(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, c := w.established(a, 1, 0)
		other, oc := w.established(a, 2, 0)
		c.gate(true)
		for range 9 {
			w.data(a, 1, kib(32)) // 288 KiB, 256 were granted
		}
		w.data(a, 2, "unharmed")
		if pk := a.take(wire.CloseRequest); pk.ConnectionID != 1 || pk.Reason != wire.ReasonCreditViolation {
			t.Errorf("CLOSE_REQ %+v", pk)
		}
		w.within(tun.Done(), 0, time.Second)
		if end := c.told(); end == nil || end.Reason != wire.ReasonCreditViolation {
			t.Errorf("the client was told %+v", end)
		}
		w.data(a, 1, "more of it")
		a.nothing() // it was told
		w.closed(a, 1, 0)
		equal(t, "the other tunnel's data", oc.data(), "unharmed")
		w.closeNow(other, a)
	})
}

// A client that does not read holds what its window allows, and nobody else
// notices, however long it takes.
func TestSlowClientIsWaitedForWithoutLimit(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		slow, c := w.established(a, 1, 0)
		other, oc := w.established(a, 2, 0)
		c.gate(true)
		for range 8 {
			w.data(a, 1, kib(32))
		}
		w.wait(time.Hour)
		w.alive(slow)
		w.data(a, 2, "quick")
		synctest.Wait()
		equal(t, "the other tunnel's data", oc.data(), "quick")
		c.gate(false)
		synctest.Wait()
		equal(t, "the slow client's data", c.data(), strings.Repeat(kib(32), 8))
		w.closeNow(slow, a)
		w.closeNow(other, a)
	})
}

// A packet of any size is given to the client in pieces, so that a slow client
// can be told from a stuck one.
func TestLargePacketsAreGivenInPieces(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(0)
		tun, c := w.established(a, 1, 0)
		big := kib(1000)
		w.data(a, 1, big)
		synctest.Wait()
		equal(t, "data", c.data(), big)
		if w.obs.writes != 16 {
			t.Errorf("%d writes", w.obs.writes)
		}
		if up, down := tun.Bytes(); up != 0 || down != 1000<<10 {
			t.Errorf("counted %d up and %d down", up, down)
		}
		c.gate(true)
		w.data(a, 1, big)
		synctest.Wait()
		tun.Abort(wire.ReasonAborted, "")
		a.take(wire.CloseRequest)
		w.closed(a, 1, 0)
		w.over(tun)
	})
}

func TestEndpointClosesAndTheRestIsDelivered(t *testing.T) {
	for name, reason := range map[string]wire.Reason{"in order": 0, "by a reset": wire.ReasonReset} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Config{}, func(w *world) {
				a := w.attach(newAgent)
				tun, c := w.established(a, 1, 0)
				c.gate(true)
				w.data(a, 1, kib(64))
				w.data(a, 1, kib(64))
				w.closed(a, 1, reason)
				w.wait(9 * time.Second)
				w.alive(tun)
				if a.peer.Load() != 0 {
					t.Error("the agent's part is over but counts as its load")
				}
				if tun.Write(w.pool.payload("too late")) == nil {
					t.Error("data for an endpoint that has closed was taken")
				}
				c.gate(false)
				w.over(tun)
				equal(t, "data", c.data(), kib(64)+kib(64))
				if len(c.events) != 2 || c.told().Reason != reason || c.wasInterrupted() {
					t.Errorf("the client was told %+v, interrupted %v", c.told(), c.wasInterrupted())
				}
				a.nothing()            // it has forgotten the connection
				if w.obs.writes != 3 { // the close is relayed too
					t.Errorf("%d writes counted", w.obs.writes)
				}
				if w.obs.lastEnd(t).Reason != reason {
					t.Errorf("ended %+v", w.obs.lastEnd(t))
				}
			})
		})
	}
}

// Behind the endpoint's orderly end a client that takes nothing is given up after
// the time that a half-closed tunnel has, one that pauses for a minute is not.
func TestRestWaitsForASlowClient(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, c := w.established(a, 1, 0)
		c.gate(true)
		for range 4 {
			w.data(a, 1, kib(32))
		}
		w.closed(a, 1, 0)
		for range 3 { // a piece every minute
			w.wait(time.Minute)
			c.pass(1)
		}
		w.alive(tun)
		w.within(tun.Done(), 4*time.Minute, 6*time.Minute)
		if c.told().Reason != wire.ReasonCloseTimeout || !c.wasInterrupted() {
			t.Errorf("the client was told %+v", c.told())
		}
	})
}

// The end itself can block: a frontend says its last word behind the data.
func TestLastWordIsBoundedToo(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, c := w.established(a, 1, 0)
		c.gate(true)
		w.closed(a, 1, 0)
		w.within(tun.Done(), 5*time.Minute, 5*time.Minute+2*interruptGrace)
		if !c.wasInterrupted() {
			t.Error("not interrupted")
		}
	})
}

func TestLinkLostAndTheRestIsDelivered(t *testing.T) {
	for _, ext := range []wire.Extensions{0, newAgent} {
		inWorld(t, Config{}, func(w *world) {
			a := w.attach(ext)
			tun, c := w.established(a, 1, 1<<20)
			stuck, sc := w.established(a, 2, 1<<20)
			c.gate(true)
			sc.gate(true)
			for _, id := range []wire.ConnectionID{1, 2} {
				w.data(a, id, kib(32))
				w.data(a, id, kib(32))
			}
			w.cut(a)
			if w.relay.Tunnels() != 2 {
				t.Fatal("not delivering")
			}
			c.gate(false)
			w.over(tun)
			equal(t, "data", c.data(), kib(32)+kib(32))
			if end := c.told(); end.Reason != wire.ReasonLinkLost {
				t.Errorf("the client was told %+v", end)
			}
			w.within(stuck.Done(), 9*time.Second, 12*time.Second)
			if end := sc.told(); end.Reason != wire.ReasonLinkLost {
				t.Errorf("the stuck client was told %+v", end)
			}
		})
	}
}

func TestUnknownConnectionsAreClosedOnce(t *testing.T) {
	for _, ext := range []wire.Extensions{0, newAgent} {
		inWorld(t, Config{}, func(w *world) {
			a := w.attach(ext)
			for range 5 {
				w.data(a, 42, "who?")
			}
			if pk := a.take(wire.CloseRequest); pk.ConnectionID != 42 {
				t.Errorf("CLOSE_REQ %+v", pk)
			}
			a.nothing()
			w.closed(a, 42, 0)
			w.closed(a, 42, 0) // unknown by now: ignored
			w.data(a, 42, "who?")
			a.take(wire.CloseRequest)
			w.closed(a, 42, 0)
		})
	}
}

// An agent that never acknowledges costs no more than a bounded set.
func TestUnacknowledgedClosesAreBounded(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		for id := range wire.ConnectionID(maxUnacknowledged + 10) {
			w.data(a, id+1, "x")
		}
		synctest.Wait()
		a.peer.mu.Lock()
		n := len(a.peer.unacknowledged)
		clear(a.peer.unacknowledged)
		a.peer.mu.Unlock()
		if n == 0 || n > maxUnacknowledged {
			t.Errorf("%d are remembered", n)
		}
	})
}

func TestEmptyAndMisplacedPacketsAreIgnored(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, c := w.established(a, 1, 1<<20)
		a.packet(wire.Packet{Type: wire.Data, ConnectionID: 1})
		a.packet(wire.Packet{Type: wire.Data, ConnectionID: 0, Payload: w.pool.payload("nobody's")})
		a.packet(wire.Packet{Type: wire.Data, ConnectionID: 9, Mismatched: true})
		a.packet(wire.Packet{Type: wire.Data, ConnectionID: 9}) // even for an unknown connection
		for _, pk := range []wire.Packet{
			{Type: wire.CloseResponse, ConnectionID: 1},
			{Type: wire.HalfClose, ConnectionID: 1},
			{Type: wire.Credit, ConnectionID: 1, Window: -1},
			{Type: wire.DialResponse}, {Type: wire.DialClose},
		} {
			pk.Mismatched = true
			a.packet(pk)
		}
		a.packet(wire.Packet{Type: wire.HalfClose, ConnectionID: 9})
		a.packet(wire.Packet{Type: wire.Credit, ConnectionID: 9, Window: 1})
		a.packet(wire.Packet{Type: wire.CloseResponse, ConnectionID: 9})
		a.nothing()
		w.alive(tun)
		if c.data() != "" || w.obs.unknown != 0 {
			t.Errorf("the client got %q", c.data())
		}
		w.closeNow(tun, a)
	})
}

// What an old agent may not know means nothing from it.
func TestExtensionsThatWereNotAgreedAreIgnored(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(0)
		tun, c := w.established(a, 1, 0)
		a.packet(wire.Packet{Type: wire.HalfClose, ConnectionID: 1})
		a.packet(wire.Packet{Type: wire.Credit, ConnectionID: 1, Window: -5})
		w.alive(tun)
		a.packet(wire.Packet{Type: wire.CloseResponse, ConnectionID: 1, Reason: wire.ReasonReset})
		w.over(tun)
		if c.told().Abnormal() {
			t.Errorf("the client was told %+v", c.told())
		}
		// Its text does mean something.
		tun, c = w.established(a, 2, 0)
		a.packet(wire.Packet{Type: wire.CloseResponse, ConnectionID: 2, Error: "broke"})
		w.over(tun)
		if *c.told() != (End{wire.ReasonOther, "broke"}) {
			t.Errorf("the client was told %+v", c.told())
		}
	})
}

func TestTinyPacketsWithinCreditAreDelivered(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, c := w.established(a, 1, 0)
		c.gate(true)
		for range 20000 {
			w.data(a, 1, "x")
		}
		synctest.Wait()
		w.alive(tun)
		if n := w.pool.out.Load(); n > 10 {
			t.Errorf("%d buffers are held for tiny packets", n)
		}
		c.gate(false)
		synctest.Wait()
		equal(t, "data", c.data(), strings.Repeat("x", 20000))
		w.closeNow(tun, a)
	})
}
