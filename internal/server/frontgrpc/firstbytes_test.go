package frontgrpc

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// The rule's times while nothing is known of how long reports take.
const (
	quiet   = quietTime + growFactor*paceUnknown
	reports = reportTime + growFactor*paceUnknown
)

// nothing checks that nothing comes for d.
func nothing(c interface{ ExpectNothing() }, d time.Duration) {
	pass(d)
	synctest.Wait()
	c.ExpectNothing()
}

// The endpoint speaks first, and the client has lost it up to five times.
func TestLostFirstChunkIsSentAgain(t *testing.T) {
	for times := range maxResends + 1 {
		bubble(t, func(t *testing.T, w *world) {
			a, c := w.agent(), w.client(0)
			w.open(c, a, 1)
			a.SendData(1, []byte("banner"))
			nothing(c, holdTime-1)
			pass(1)
			for i := range times {
				c.ExpectData(1, []byte("banne"))
				c.Send(closeReq(1))
				pause := firstPause
				if i > 0 {
					for range i {
						pause *= pauseFactor
					}
					pause += paceUnknown
				}
				nothing(c, pause-1)
				pass(1)
			}
			c.ExpectData(1, []byte("banne"))
			a.SendData(1, []byte(", and more"))
			nothing(c, quiet-1)
			pass(1)
			c.ExpectData(1, []byte("r, and more"))
			a.ExpectNothing()
			c.Send(closeReq(1)) // now it is a close
			a.ExpectOn(wire.CloseRequest, 1)
			a.Send(closeRsp(1))
			c.ExpectOn(wire.CloseResponse, 1)
			wantEOF(t, c)
		})
	}
}

// With nothing to follow, a late report still counts, but not a very late one.
func TestLateReports(t *testing.T) {
	for _, tt := range []struct {
		after time.Duration
		lost  bool
	}{
		{0, true}, {quiet, true}, {quiet + 1, true}, {reports - 1, true}, {reports + 1, false}, {time.Hour, false},
	} {
		bubble(t, func(t *testing.T, w *world) {
			a, c := w.agent(), w.client(0)
			w.open(c, a, 1)
			a.SendData(1, []byte("b")) // nothing is left for later
			c.ExpectData(1, []byte("b"))
			nothing(c, tt.after)
			c.Send(closeReq(1))
			if tt.lost {
				c.ExpectData(1, []byte("b"))
				synctest.Wait()
				a.ExpectNothing()
				return
			}
			a.ExpectOn(wire.CloseRequest, 1)
		})
	}
}

// When reports take long, more time is given to those of others; when they have
// been quick for a while, less.
func TestPatience(t *testing.T) {
	banner := func(w *world, a *tunneltest.AgentPeer, id wire.ConnectionID) *tunneltest.ClientPeer {
		c := w.client(0)
		w.open(c, a, id)
		a.SendData(id, []byte("banner"))
		c.ExpectData(id, []byte("banne"))
		return c
	}
	for _, tt := range []struct{ report, period, want time.Duration }{
		{0, 0, growFactor * paceUnknown},
		{0, pacePeriod, 0},
		{5 * time.Millisecond, pacePeriod, growFactor * 5 * time.Millisecond},
		{50 * time.Millisecond, 0, growFactor * 50 * time.Millisecond},
		{150 * time.Millisecond, 0, maxGrowth},
	} {
		bubble(t, func(t *testing.T, w *world) {
			a := w.agent()
			c := banner(w, a, 1)
			pass(tt.report)
			c.Send(closeReq(1))
			c.ExpectData(1, []byte("banne"))
			pass(tt.period)
			c = banner(w, a, 2)
			nothing(c, quietTime+tt.want-1)
			pass(1)
			c.ExpectData(2, []byte("r"))
		})
	}
}

// More than five reports are a close, and so is a second one before the chunk was
// sent again.
func TestTooManyReports(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, c := w.agent(), w.client(0)
		w.open(c, a, 1)
		a.SendData(1, []byte("banner"))
		for range maxResends + 1 {
			c.ExpectData(1, []byte("banne"))
			c.Send(closeReq(1))
		}
		a.ExpectOn(wire.CloseRequest, 1)
		a.Send(closeRsp(1))
		c.ExpectOn(wire.CloseResponse, 1)
		wantEOF(t, c)
	})
	bubble(t, func(t *testing.T, w *world) {
		a, c := w.agent(), w.client(0)
		w.open(c, a, 1)
		a.SendData(1, []byte("banner"))
		c.ExpectData(1, []byte("banne"))
		c.Send(closeReq(1), closeReq(1))
		a.ExpectOn(wire.CloseRequest, 1)
	})
}

// A client that closes before it was sent anything really closes.
func TestCloseDuringTheHold(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, c := w.agent(), w.client(0)
		w.open(c, a, 1)
		a.SendData(1, []byte("banner"))
		nothing(c, holdTime/2)
		c.Send(closeReq(1))
		a.ExpectOn(wire.CloseRequest, 1)
	})
}

// A client that has sent anything knows its connection: nothing is held back,
// and its CLOSE_REQ is a close.
func TestClientThatSpoke(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, c := w.agent(), w.client(0)
		w.open(c, a, 1)
		c.Send(data(1, "hello"))
		a.ExpectData(1, []byte("hello"))
		start := time.Now()
		a.SendData(1, []byte("one"))
		synctest.Wait()
		a.SendData(1, []byte("two"))
		c.ExpectData(1, []byte("onetwo"))
		c.Send(closeReq(1))
		a.ExpectOn(wire.CloseRequest, 1)
		if time.Since(start) != 0 {
			t.Errorf("something waited for %v", time.Since(start))
		}
	})
}

// The first packet of a client ends the hold, before the chunk or after it.
func TestClientThatAnswersTheBanner(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, c := w.agent(), w.client(0)
		w.open(c, a, 1)
		a.SendData(1, []byte("banner"))
		nothing(c, holdTime/2)
		c.Send(data(1, "hello"))
		synctest.Wait()
		c.ExpectData(1, []byte("banner"))
		c.Send(closeReq(1))
		a.ExpectData(1, []byte("hello"))
		a.ExpectOn(wire.CloseRequest, 1)
	})
	bubble(t, func(t *testing.T, w *world) {
		a, c := w.agent(), w.client(0)
		w.open(c, a, 1)
		a.SendData(1, []byte("banner"))
		c.ExpectData(1, []byte("banne"))
		nothing(c, quiet/2)
		c.Send(data(1, "hello"))
		synctest.Wait()
		c.ExpectData(1, []byte("r"))
		c.Send(closeReq(1))
		a.ExpectData(1, []byte("hello"))
		a.ExpectOn(wire.CloseRequest, 1)
	})
}

// A client that reports a loss and then speaks gets the chunk before anything else.
func TestClientThatSpeaksAfterItsReport(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, c := w.agent(), w.client(0)
		w.open(c, a, 1)
		a.SendData(1, []byte("banner"))
		c.ExpectData(1, []byte("banne"))
		start := time.Now()
		c.Send(closeReq(1), data(1, "hello"))
		c.ExpectData(1, []byte("banner"))
		if time.Since(start) >= firstPause {
			t.Errorf("after %v", time.Since(start))
		}
		a.ExpectData(1, []byte("hello"))
		c.Send(closeReq(1))
		a.ExpectOn(wire.CloseRequest, 1)
	})
}

// An endpoint that speaks and closes: the end waits behind the chunk.
func TestBannerAndClose(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, c := w.agent(), w.client(0)
		w.open(c, a, 1)
		a.SendData(1, []byte("b"))
		a.Send(closeRsp(1))
		c.ExpectData(1, []byte("b"))
		c.Send(closeReq(1))
		c.ExpectData(1, []byte("b"))
		nothing(c, quiet-1)
		pass(1)
		c.ExpectOn(wire.CloseResponse, 1)
		wantEOF(t, c)
	})
}

// Clients with extensions lose nothing.
func TestNewClientsAreNotHeldBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, c := w.agent(), w.client(wire.ExtReason)
		w.open(c, a, 1)
		start := time.Now()
		a.SendData(1, []byte("one"))
		synctest.Wait()
		a.SendData(1, []byte("two"))
		c.ExpectData(1, []byte("onetwo"))
		c.Send(closeReq(1))
		a.ExpectOn(wire.CloseRequest, 1)
		if time.Since(start) != 0 {
			t.Errorf("something waited for %v", time.Since(start))
		}
	})
}

// A large first chunk is cut, and a client that goes in the middle frees all.
func TestLargeFirstChunk(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, c := w.agent(), w.client(0)
		w.open(c, a, 1)
		big := bytes.Repeat([]byte("0123456789abcdef"), 200<<10/16)
		a.Send(wire.Packet{Type: wire.Data, ConnectionID: 1, Payload: wire.PayloadBytes(big)})
		c.ExpectData(1, big[:maxData-1])
		c.Send(closeReq(1))
		c.ExpectData(1, big[:maxData-1])
		nothing(c, quiet-1)
		c.ExpectData(1, big[maxData-1:])
	})
	for _, after := range []time.Duration{0, holdTime / 2, holdTime, quiet, reports} {
		bubble(t, func(t *testing.T, w *world) {
			a, c := w.agent(), w.client(0)
			w.open(c, a, 1)
			a.SendData(1, []byte("banner"))
			pass(after)
			c.Close()
			pass(lossGrace)
			synctest.Wait()
			if w.obs.streams() != 0 {
				t.Error("the stream is still there")
			}
			a.ExpectOn(wire.CloseRequest, 1)
		})
	}
}

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pace
		want := func(d time.Duration) {
			t.Helper()
			if got := p.lately(); got != d {
				t.Errorf("lately %v, want %v", got, d)
			}
		}
		want(paceUnknown)
		p.late(2 * paceUnknown)
		want(2 * paceUnknown)
		pass(pacePeriod)
		want(2 * paceUnknown)
		p.reported(1)
		pass(pacePeriod)
		want(1)
		p.late(3)
		want(3)
		pass(pacePeriod)
		want(paceUnknown)
		pass(2 * pacePeriod)
		want(paceUnknown)
	})
}
