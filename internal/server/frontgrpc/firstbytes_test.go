package frontgrpc

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// nothing checks that nothing comes for d.
func nothing(c interface{ ExpectNothing() }, d time.Duration) {
	pass(d)
	synctest.Wait()
	c.ExpectNothing()
}

// The endpoint speaks first, and the client has lost it up to five times.
func TestLostFirstChunkIsSentAgain(t *testing.T) {
	for lost := range maxResends + 1 {
		bubble(t, func(t *testing.T, w *world) {
			a, c := w.agent(), w.client(0)
			w.open(c, a, 1)
			a.SendData(1, []byte("banner"))
			synctest.Wait()
			a.SendData(1, []byte(", and more"))
			for range lost {
				c.ExpectData(1, []byte("banner"))
				nothing(c, quietTime-1)
				c.Send(closeReq(1))
			}
			c.ExpectData(1, []byte("banner"))
			nothing(c, quietTime-1)
			pass(1)
			c.ExpectData(1, []byte(", and more"))
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
		{quietTime, true}, {quietTime + 1, true}, {reportTime - 1, true}, {reportTime + 1, false}, {time.Hour, false},
	} {
		bubble(t, func(t *testing.T, w *world) {
			a, c := w.agent(), w.client(0)
			w.open(c, a, 1)
			a.SendData(1, []byte("banner"))
			c.ExpectData(1, []byte("banner"))
			nothing(c, tt.after)
			c.Send(closeReq(1))
			if tt.lost {
				c.ExpectData(1, []byte("banner"))
				synctest.Wait()
				a.ExpectNothing()
				return
			}
			a.ExpectOn(wire.CloseRequest, 1)
		})
	}
}

// More than five reports are a close.
func TestTooManyReports(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, c := w.agent(), w.client(0)
		w.open(c, a, 1)
		a.SendData(1, []byte("banner"))
		for range maxResends + 1 {
			c.ExpectData(1, []byte("banner"))
			c.Send(closeReq(1))
		}
		a.ExpectOn(wire.CloseRequest, 1)
		a.Send(closeRsp(1))
		c.ExpectOn(wire.CloseResponse, 1)
		wantEOF(t, c)
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

// The first packet of a client ends the hold.
func TestClientThatAnswersTheBanner(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, c := w.agent(), w.client(0)
		w.open(c, a, 1)
		a.SendData(1, []byte("banner"))
		synctest.Wait()
		a.SendData(1, []byte(" more"))
		c.ExpectData(1, []byte("banner"))
		nothing(c, quietTime/2)
		c.Send(data(1, "hello"))
		synctest.Wait()
		c.ExpectData(1, []byte(" more"))
		c.Send(closeReq(1))
		a.ExpectData(1, []byte("hello"))
		a.ExpectOn(wire.CloseRequest, 1)
	})
}

// An endpoint that speaks and closes: the end waits behind the chunk.
func TestBannerAndClose(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, c := w.agent(), w.client(0)
		w.open(c, a, 1)
		a.SendData(1, []byte("banner"))
		a.Send(closeRsp(1))
		c.ExpectData(1, []byte("banner"))
		pass(quietTime / 2)
		c.Send(closeReq(1))
		c.ExpectData(1, []byte("banner"))
		nothing(c, quietTime-1)
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
		c.ExpectData(1, big[:maxData])
		nothing(c, quietTime-1)
		c.Send(closeReq(1))
		c.ExpectData(1, big[:maxData])
		pass(quietTime)
		c.ExpectData(1, big[maxData:])
	})
	bubble(t, func(t *testing.T, w *world) {
		a, c := w.agent(), w.client(0)
		w.open(c, a, 1)
		a.SendData(1, []byte("banner"))
		synctest.Wait()
		a.SendData(1, []byte("more"))
		c.ExpectData(1, []byte("banner"))
		c.Close()
		pass(lossGrace)
		synctest.Wait()
		if w.obs.streams() != 0 {
			t.Error("the stream is still there")
		}
		a.ExpectOn(wire.CloseRequest, 1)
	})
}
