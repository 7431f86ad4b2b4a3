package relay

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// A client that writes and closes at once, to an endpoint that reads slowly but
// steadily: every byte arrives, however long it takes.
func TestOrderlyCloseDeliversEverything(t *testing.T) {
	for name, leave := range map[string]func(tun *Tunnel){
		"close":              func(tun *Tunnel) { tun.Close() },
		"hang-up then close": func(tun *Tunnel) { tun.HangUp(); tun.Close() },
		"close then gone":    func(tun *Tunnel) { tun.Close(); tun.Abort(wire.ReasonAborted, "stream cancelled") },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Config{}, func(w *world) {
				a := w.attach(newAgent)
				tun, _ := w.established(a, 1, 64<<10)
				all := kib(500)
				done := w.write(tun, all, func() { leave(tun) })
				for a.data(1) != all {
					w.wait(6 * time.Second)
					w.alive(tun)
					w.credit(a, 1, 16<<10)
				}
				<-done
				if pk := a.take(wire.CloseRequest); pk.ConnectionID != 1 || pk.Reason != 0 {
					t.Errorf("CLOSE_REQ %+v", pk)
				}
				w.wait(25 * time.Second) // the agent delivers on
				w.alive(tun)
				w.closed(a, 1, 0)
				w.over(tun)
				if end := w.obs.lastEnd(t); end.Abnormal() {
					t.Errorf("ended %+v", end)
				}
			})
		})
	}
}

// A client that hangs up while its adapter still has bytes of it.
func TestHangUpWithBytesLeftBehind(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, c := w.established(a, 1, 64<<10)
		c.gate(true)
		w.data(a, 1, kib(100)) // nobody wants it any more
		synctest.Wait()
		tun.HangUp()
		all := kib(300)
		done := w.write(tun, all, tun.Close)
		w.data(a, 1, kib(100))
		for range 15 {
			w.wait(2 * time.Second)
			w.credit(a, 1, 20<<10)
		}
		<-done
		equal(t, "data", a.data(1), all)
		if got := a.granted(1); got < 150<<10 {
			t.Errorf("data thrown away was not credited: %d bytes granted", got)
		}
		if !isClosed(tun.Detached()) || isClosed(tun.Done()) {
			t.Error("the frontend is not released, or the tunnel is over too early")
		}
		if !c.wasInterrupted() || c.data() != "" {
			t.Errorf("interrupted %v, %d bytes were delivered", c.wasInterrupted(), len(c.data()))
		}
		a.take(wire.CloseRequest)
		w.closed(a, 1, 0)
		w.over(tun)
	})
}

// The end of the input can be said by CloseWrite as well, before or after.
func TestHangUpAndCloseWrite(t *testing.T) {
	for name, leave := range map[string]func(tun *Tunnel){
		"half first":    func(tun *Tunnel) { tun.CloseWrite(); tun.HangUp() },
		"hang-up first": func(tun *Tunnel) { tun.HangUp(); tun.CloseWrite() },
	} {
		for _, ext := range []wire.Extensions{0, newAgent} {
			t.Run(name+" "+ext.String(), func(t *testing.T) {
				inWorld(t, Config{}, func(w *world) {
					a := w.attach(ext)
					tun, _ := w.established(a, 1, 64<<10)
					<-w.write(tun, "last words", nil)
					leave(tun)
					synctest.Wait()
					if !isClosed(tun.Detached()) {
						t.Error("the frontend is not released")
					}
					if ext.Has(wire.ExtHalfClose) && strings.HasPrefix(name, "half") {
						a.take(wire.HalfClose)
					}
					a.take(wire.CloseRequest)
					equal(t, "data", a.data(1), "last words")
					w.closed(a, 1, 0)
					w.over(tun)
				})
			})
		}
	}
}

// An endpoint that takes nothing: given up after the close timeout.
func TestCloseTimeout(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, c := w.established(a, 1, 1<<10)
		<-w.write(tun, kib(100), nil)
		w.wait(time.Second)
		tun.Close()
		w.within(tun.Done(), 9*time.Second, 10*time.Second+time.Millisecond)
		if pk := a.take(wire.CloseRequest); pk.Reason != wire.ReasonCloseTimeout {
			t.Errorf("CLOSE_REQ %+v", pk)
		}
		if c.told().Reason != wire.ReasonCloseTimeout {
			t.Errorf("the client was told %+v", c.told())
		}
		w.closed(a, 1, 0)
	})
}

// The time runs from the hang-up on, not anew from the close.
func TestCloseTimeoutRunsFromTheHangUp(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, _ := w.established(a, 1, 1<<10)
		<-w.write(tun, kib(100), nil)
		tun.HangUp()
		w.wait(4 * time.Second)
		tun.Close()
		w.within(tun.Done(), 5*time.Second, 6*time.Second+time.Millisecond)
		a.take(wire.CloseRequest)
		w.closed(a, 1, 0)
	})
}

// One that had taken nothing for a while already: within a second.
func TestCloseOfAStuckTunnel(t *testing.T) {
	for name, end := range map[string]func(tun *Tunnel){
		"close":   func(tun *Tunnel) { tun.Close() },
		"hang-up": func(tun *Tunnel) { tun.HangUp() },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Config{}, func(w *world) {
				a := w.attach(newAgent)
				tun, _ := w.established(a, 1, 1<<10)
				written := w.write(tun, kib(50), nil) // fits into the queue
				w.wait(3 * time.Second)
				if name == "hang-up" {
					written = w.write(tun, kib(200), nil) // blocks
				}
				w.wait(5500 * time.Millisecond)
				end(tun)
				w.within(tun.Done(), 0, time.Second)
				<-written
				if pk := a.take(wire.CloseRequest); pk.Reason != wire.ReasonCloseTimeout {
					t.Errorf("CLOSE_REQ %+v", pk)
				}
				w.closed(a, 1, 0)
			})
		})
	}
}

// The same on a link that takes no data at all, which is how an old agent's stuck
// endpoint looks.
func TestCloseOnAStuckLink(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(0)
		tun, _ := w.established(a, 1, 0)
		a.stall(true)
		<-w.write(tun, kib(50), nil)
		w.wait(6 * time.Second)
		tun.Close()
		w.within(tun.Done(), 0, time.Second)
		a.take(wire.CloseRequest)
		w.closed(a, 1, 0)
	})
}

// What only looks stuck has the full time: bytes that are young, an agent that
// has granted lately, a link that moves on.
func TestCloseOfATunnelThatIsNotStuck(t *testing.T) {
	for name, prepare := range map[string]func(w *world, a *fakeAgent, tun *Tunnel){
		"young bytes": func(w *world, _ *fakeAgent, tun *Tunnel) {
			w.wait(time.Minute)
			<-w.write(tun, kib(100), nil)
		},
		"credit lately": func(w *world, a *fakeAgent, tun *Tunnel) {
			<-w.write(tun, kib(100), nil)
			w.wait(4 * time.Second)
			w.credit(a, 1, 1000)
			w.wait(2 * time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Config{}, func(w *world) {
				a := w.attach(newAgent)
				tun, _ := w.established(a, 1, 1<<10)
				prepare(w, a, tun)
				tun.Close()
				w.wait(9 * time.Second)
				w.alive(tun)
				w.credit(a, 1, 1<<20)
				equal(t, "data", a.data(1), kib(100))
				a.take(wire.CloseRequest)
				w.closed(a, 1, 0)
				w.over(tun)
			})
		})
	}
}

// A suspicion is dropped when anything moves.
func TestSuspicionIsDroppedWhenBytesMove(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, _ := w.established(a, 1, 1<<10)
		<-w.write(tun, kib(100), nil)
		w.wait(6 * time.Second)
		tun.Close()
		w.wait(500 * time.Millisecond)
		w.credit(a, 1, 1000)
		w.wait(9 * time.Second)
		w.alive(tun)
		w.within(tun.Done(), 0, 3*time.Second)
		a.take(wire.CloseRequest)
		w.closed(a, 1, 0)
	})
}

// An agent that was given everything has time for its own close timeout, and
// longer while it shows progress; not for ever.
func TestAgentThatDoesNotAnswerAClose(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, _ := w.established(a, 1, 1<<20)
		<-w.write(tun, kib(100), nil)
		tun.HangUp()
		tun.Close()
		a.take(wire.CloseRequest)
		for range 10 {
			w.wait(12 * time.Second)
			w.credit(a, 1, 1000)
		}
		w.alive(tun)
		w.within(tun.Done(), 25*time.Second, 35*time.Second)
		if pk := a.take(wire.CloseRequest); pk.Reason != wire.ReasonCloseTimeout {
			t.Errorf("CLOSE_REQ %+v", pk)
		}
		w.closed(a, 1, 0)
	})
}

// The agent gave up on the endpoint: the tunnel's end says so.
func TestAgentGaveUp(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, c := w.established(a, 1, 1<<20)
		tun.Close()
		a.take(wire.CloseRequest)
		w.closed(a, 1, wire.ReasonCloseTimeout)
		w.over(tun)
		if c.told().Reason != wire.ReasonCloseTimeout || w.obs.lastEnd(t).Reason != wire.ReasonCloseTimeout {
			t.Errorf("the client was told %+v", c.told())
		}
	})
}

// After the client's close what the endpoint had sent is still delivered, and
// then the client has its answer.
func TestCloseStillDeliversDown(t *testing.T) {
	for _, ext := range []wire.Extensions{0, newAgent} {
		inWorld(t, Config{}, func(w *world) {
			a := w.attach(ext)
			tun, c := w.established(a, 1, 1<<20)
			tun.Close()
			a.take(wire.CloseRequest)
			w.data(a, 1, "on its way")
			synctest.Wait()
			if c.told() != nil || isClosed(tun.Detached()) {
				t.Error("the client was told before the agent has answered")
			}
			w.closed(a, 1, 0)
			w.over(tun)
			equal(t, "data", c.data(), "on its way")
			if c.told().Abnormal() {
				t.Errorf("the client was told %+v", c.told())
			}
		})
	}
}

// A client that closed in order and does not read or is gone: the tunnel goes on
// without it.
func TestClientVanishesAfterItsClose(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, c := w.established(a, 1, 1<<10)
		<-w.write(tun, kib(10), nil)
		tun.Close()
		c.vanish()
		w.data(a, 1, "nobody reads this")
		synctest.Wait()
		if !isClosed(tun.Detached()) || isClosed(tun.Done()) {
			t.Error("the frontend is not released, or the tunnel is over")
		}
		w.data(a, 1, "nor this")
		w.credit(a, 1, 1<<20)
		equal(t, "data", a.data(1), kib(10))
		a.take(wire.CloseRequest)
		w.closed(a, 1, 0)
		w.over(tun)
		if w.obs.lastEnd(t).Abnormal() {
			t.Errorf("ended %+v", w.obs.lastEnd(t))
		}
	})
}
