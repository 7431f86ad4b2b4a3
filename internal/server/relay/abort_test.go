package relay

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Abort frees everything at once: queued data on both sides, a blocked writer, a
// blocked frontend.
func TestAbort(t *testing.T) {
	for _, ext := range []wire.Extensions{0, newAgent, newAgent &^ wire.ExtCredit} {
		inWorld(t, Config{}, func(w *world) {
			a := w.attach(ext)
			tun, c := w.established(a, 1, 1<<10)
			reason := wire.ReasonAborted
			if ext == newAgent {
				reason = wire.ReasonCanceled // the same, to the agent
			}
			c.gate(true)
			a.stall(true)
			w.data(a, 1, kib(30))
			w.data(a, 1, kib(30))
			written := w.write(tun, kib(500), nil)
			synctest.Wait()
			tun.Abort(reason, "reset")
			synctest.Wait() // no time passes
			w.over(tun)
			<-written
			pk := a.take(wire.CloseRequest)
			if pk.Reason == wire.ReasonAborted != ext.Has(wire.ExtReason) {
				t.Errorf("CLOSE_REQ %+v", pk)
			}
			if end := c.told(); end == nil || end.Reason != reason || !c.wasInterrupted() {
				t.Errorf("the client was told %+v", end)
			}
			w.data(a, 1, "still on its way")
			a.nothing()
			w.closed(a, 1, 0)
		})
	}
}

// A broken tunnel's client is told, if it listens; one that does not read is
// interrupted a moment later.
func TestBrokenTunnelsClientIsTold(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, c := w.established(a, 1, 0)
		tun.Abort(wire.ReasonProtocolError, "broke a rule")
		w.over(tun)
		if *c.told() != (End{wire.ReasonProtocolError, "broke a rule"}) || c.wasInterrupted() {
			t.Errorf("the client was told %+v", c.told())
		}
		a.take(wire.CloseRequest)
		w.closed(a, 1, 0)

		tun, c = w.established(a, 2, 0)
		c.gate(true)
		w.data(a, 2, "x")
		synctest.Wait()
		tun.Abort(wire.ReasonProtocolError, "")
		synctest.Wait()
		if c.wasInterrupted() {
			t.Error("interrupted at once")
		}
		w.within(tun.Done(), 0, time.Second)
		a.take(wire.CloseRequest)
		w.closed(a, 2, 0)
	})
}

func TestClientThatCannotBeToldOfItsTunnel(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, c := w.open()
		c.vanish()
		w.accept(a, 1, 0)
		w.over(tun)
		if tun.WaitEstablished() == nil {
			t.Error("WaitEstablished: no error")
		}
		if pk := a.take(wire.CloseRequest); pk.Reason != wire.ReasonAborted {
			t.Errorf("CLOSE_REQ %+v", pk)
		}
		w.closed(a, 1, 0)
	})
}

func TestWriteToAVanishedClientAborts(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, c := w.established(a, 1, 0)
		c.vanish()
		w.data(a, 1, "x")
		w.over(tun)
		if end := c.told(); end.Reason != wire.ReasonAborted {
			t.Errorf("ended %+v", end)
		}
		if pk := a.take(wire.CloseRequest); pk.Reason != wire.ReasonAborted {
			t.Errorf("CLOSE_REQ %+v", pk)
		}
		w.closed(a, 1, 0)
	})
}

// The client leaves between the agent's answer and being told of it.
func TestClientLeavesWhileItIsTold(t *testing.T) {
	for name, leave := range map[string]func(tun *Tunnel){
		"abort":   func(tun *Tunnel) { tun.Abort(wire.ReasonAborted, "") },
		"hang-up": func(tun *Tunnel) { tun.HangUp() },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Config{}, func(w *world) {
				a := w.attach(newAgent)
				tun, c := w.open()
				c.gate(true)
				w.accept(a, 1, 0)
				leave(tun)
				w.over(tun)
				if tun.WaitEstablished() == nil || c.failed() != nil {
					t.Errorf("WaitEstablished: %v, failed %v", tun.WaitEstablished(), c.failed())
				}
				a.take(wire.CloseRequest)
				w.closed(a, 1, 0)
			})
		})
	}
}

// A client that was told in time and hung up then: what it sent counts.
func TestHangUpWhileTheAnswerStillArrives(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, c := w.open()
		c.stubborn = true
		c.gate(true)
		w.accept(a, 1, 1<<10)
		tun.HangUp()
		synctest.Wait()
		c.gate(false)
		if err := tun.WaitEstablished(); err != nil {
			t.Fatal(err)
		}
		<-w.write(tun, "left behind", tun.Close)
		a.take(wire.CloseRequest)
		equal(t, "data", a.data(1), "left behind")
		w.closed(a, 1, 0)
		w.over(tun)
	})
}

// Everything may be said twice, and late.
func TestRepeatedAndLateEndings(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		a := w.attach(newAgent)
		tun, _ := w.established(a, 1, 100)
		for range 2 {
			tun.CloseWrite()
			tun.HangUp()
			tun.Close()
		}
		a.take(wire.HalfClose)
		a.take(wire.CloseRequest)
		a.nothing()
		w.closed(a, 1, 0)
		w.closed(a, 1, 0)
		w.over(tun)
		tun.HangUp()
		tun.Close()
		tun.CloseWrite()
		tun.Abort(wire.ReasonAborted, "")
		a.nothing()
	})
}
