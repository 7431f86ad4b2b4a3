package frontgrpc

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// A foreign agent's large DATA must not be larger than what a client takes.
func TestLargeDataIsCut(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, c := w.agent(), w.client(0)
		w.open(c, a, 1)
		c.Send(data(1, "x"))
		a.ExpectData(1, []byte("x"))
		big := bytes.Repeat([]byte("0123456789abcdef"), 200<<10/16)
		a.Send(wire.Packet{Type: wire.Data, ConnectionID: 1, Payload: wire.PayloadBytes(big)})
		for got := 0; got < len(big); {
			k := c.ExpectOn(wire.Data, 1)
			if k.Payload.Len() > maxData || !bytes.Equal(k.Payload.Bytes(), big[got:got+k.Payload.Len()]) {
				t.Fatalf("DATA of %d bytes at %d", k.Payload.Len(), got)
			}
			got += k.Payload.Len()
		}
	})
}

// A client that sends more than 4 MiB at once loses its stream, and nobody else's.
func TestOversizeMessage(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, c, other := w.agent(), w.client(0), w.client(0)
		w.open(other, a, 1)
		w.open(c, a, 2)
		c.SendRaw(make([]byte, 5<<20))
		if err := c.ExpectEnd(); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("ended with %v", err)
		}
		a.ExpectOn(wire.CloseRequest, 2)
		a.Send(closeRsp(2))
		other.Send(data(1, "still here"))
		a.ExpectData(1, []byte("still here"))
		if len(w.obs.receiveErr) != 1 || status.Code(w.obs.receiveErr[0]) != codes.ResourceExhausted {
			t.Errorf("receive errors %v", w.obs.receiveErr)
		}
	})
}

// A client that does not read holds its own tunnel up, and nothing else: as long
// as the endpoint is there without limit, after its end for as long as the relay
// waits.
func TestClientThatDoesNotRead(t *testing.T) {
	big := bytes.Repeat([]byte("x"), 256<<10)
	stuck := func(t *testing.T, w *world) (*tunneltest.AgentPeer, *tunneltest.ClientPeer) {
		t.Helper()
		a, c := w.newAgent(), w.client(wire.ExtReason)
		w.open(c, a, 1)
		c.SetReading(false)
		a.SendData(1, big)
		synctest.Wait()
		return a, c
	}
	t.Run("endpoint stays", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			a, c := stuck(t, w)
			pass(time.Hour)
			c.SetReading(true)
			c.ExpectData(1, big)
			a.Send(closeRsp(1))
			c.ExpectOn(wire.CloseResponse, 1)
			wantEOF(t, c)
		})
	})
	t.Run("endpoint closes, client goes on", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			a, c := stuck(t, w)
			a.Send(closeRsp(1))
			pass(time.Minute)
			c.SetReading(true)
			c.ExpectData(1, big)
			if k := c.ExpectOn(wire.CloseResponse, 1); k.Reason != 0 {
				t.Errorf("closed with %v", k.Reason)
			}
			wantEOF(t, c)
		})
	})
	t.Run("endpoint closes, client never goes on", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			a, _ := stuck(t, w)
			a.Send(closeRsp(1))
			pass(6 * time.Minute)
			if w.obs.streams() != 0 || w.relay.Tunnels() != 0 {
				t.Errorf("%d streams, %d tunnels", w.obs.streams(), w.relay.Tunnels())
			}
		})
	})
	t.Run("client leaves", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			a, c := stuck(t, w)
			pass(time.Minute)
			c.Close()
			pass(lossGrace)
			synctest.Wait()
			if w.obs.streams() != 0 {
				t.Errorf("%d streams", w.obs.streams())
			}
			a.ExpectOn(wire.CloseRequest, 1)
			a.Send(closeRsp(1))
		})
	})
	t.Run("agent is lost", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			a, c := stuck(t, w)
			a.Close()
			pass(5 * time.Second)
			c.SetReading(true)
			c.ExpectData(1, big)
			if k := c.ExpectOn(wire.CloseResponse, 1); k.Reason != wire.ReasonLinkLost {
				t.Errorf("closed with %v", k.Reason)
			}
			wantEOF(t, c)
		})
	})
}

func TestTapsCompose(t *testing.T) {
	called := 0
	bubbleWith(t, wire.AllExtensions, tapped(&called), func(t *testing.T, w *world) {
		a, c := w.agent(), w.client(0)
		w.open(c, a, 1)
		if called != 1 {
			t.Errorf("the other tap was called %d times", called)
		}
	})
}

// An endpoint that takes nothing: the client's reader waits for it, and still the
// loss of the client is noticed at once.
func TestClientOfAStuckEndpointLeaves(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, c := w.newAgent(), w.client(0)
		c.Send(dial(42))
		k := a.ExpectDial("h:1")
		a.Send(wire.Packet{Type: wire.DialResponse, DialID: k.DialID, ConnectionID: 1}) // no credit at all
		c.ExpectOn(wire.DialResponse, 1)
		c.Send(data(1, string(make([]byte, 200<<10))), data(1, "more"))
		pass(time.Minute)
		c.Close()
		start := time.Now()
		a.ExpectOn(wire.CloseRequest, 1)
		if d := time.Since(start); d > time.Second {
			t.Errorf("the agent was told after %v", d)
		}
	})
}

// What a client sent just before it went has arrived, its CLOSE_REQ among it.
func TestClientClosesAndGoes(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, c := w.newAgent(), w.client(0)
		w.open(c, a, 1)
		for range 100 {
			c.Send(data(1, "x"))
		}
		c.Send(closeReq(1))
		w.net.Shape("front", "client", tunneltest.Shape{Stall: true}) // no answer gets through
		synctest.Wait()
		w.net.Cut("client", "front")
		a.ExpectData(1, bytes.Repeat([]byte("x"), 100))
		if k := a.ExpectOn(wire.CloseRequest, 1); k.Reason != wire.ReasonNone {
			t.Errorf("closed with %v", k.Reason)
		}
		a.Send(closeRsp(1))
	})
}

// The end of the stream must not overtake what an old client makes of the answer;
// it is given a moment to end the stream by itself.
func TestWhoEndsTheStream(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ext   wire.Extensions
		leave bool
		after time.Duration
	}{
		{"old client that waits", 0, false, partingTime},
		{"old client that leaves", 0, true, lossGrace},
		{"new client", wire.ExtReason, false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a, c := w.agent(), w.client(tt.ext)
				w.open(c, a, 1)
				c.Send(data(1, "x"), closeReq(1))
				a.ExpectData(1, []byte("x"))
				a.ExpectOn(wire.CloseRequest, 1)
				a.Send(closeRsp(1))
				c.ExpectOn(wire.CloseResponse, 1)
				synctest.Wait()
				if w.relay.Tunnels() != 0 {
					t.Error("the tunnel waits for the client's end of the stream")
				}
				if tt.leave {
					c.Close()
				}
				if tt.after > 0 {
					pass(tt.after - 1)
					synctest.Wait()
					if w.obs.streams() != 1 {
						t.Error("the stream ended too early")
					}
					pass(1)
				}
				synctest.Wait()
				if w.obs.streams() != 0 {
					t.Error("the stream is still there")
				}
				if !tt.leave {
					wantEOF(t, c)
				}
			})
		})
	}
}
