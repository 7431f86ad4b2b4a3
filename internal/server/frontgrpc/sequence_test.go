package frontgrpc

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// The sequences of COMPAT 1.7 with an old client and an old agent, as changed by
// 9.2 and 11.

func TestDialDataCloseByClient(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, c := w.agent(), w.client(0)
		w.open(c, a, 1)
		c.Send(data(1, "request"), data(1, ""), data(1, "!"))
		a.ExpectData(1, []byte("request!"))
		a.SendData(1, []byte("answer"))
		c.ExpectData(1, []byte("answer"))
		c.Send(closeReq(1))
		a.ExpectOn(wire.CloseRequest, 1)
		synctest.Wait()
		c.ExpectNothing()
		a.Send(closeRsp(1))
		if k := c.ExpectOn(wire.CloseResponse, 1); k.Error != "" || k.Reason != 0 {
			t.Errorf("closed with %+v", k)
		}
		wantEOF(t, c)
		if w.obs.got[wire.Data] != 3 || w.obs.sent[wire.Data] != 1 || w.obs.sent[wire.DialResponse] != 1 || w.obs.sent[wire.CloseResponse] != 1 {
			t.Errorf("counted %v and %v", w.obs.got, w.obs.sent)
		}
	})
}

func TestCloseByEndpoint(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, c := w.agent(), w.client(0)
		w.open(c, a, 1)
		c.Send(data(1, "x"))
		a.ExpectData(1, []byte("x"))
		a.SendData(1, []byte("rest"))
		a.Send(closeRsp(1))
		c.ExpectData(1, []byte("rest"))
		if k := c.ExpectOn(wire.CloseResponse, 1); k.Error != "" {
			t.Errorf("closed with %+v", k)
		}
		wantEOF(t, c)
	})
}

func TestFailedDials(t *testing.T) {
	const refused = "dial tcp 127.0.0.1:1: connect: connection refused"
	for _, ext := range []wire.Extensions{0, wire.ExtReason} {
		reason := func(r wire.Reason) wire.Reason {
			if ext == 0 {
				return 0
			}
			return r
		}
		t.Run("by the agent", func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a, c := w.agent(), w.client(ext)
				c.Send(dial(42))
				k := a.ExpectDial("h:1")
				a.Send(wire.Packet{Type: wire.DialResponse, DialID: k.DialID, Error: refused})
				if k := c.ExpectOn(wire.DialResponse, 0); k.DialID != 42 || k.Error != refused || k.Reason != reason(wire.ReasonRefused) {
					t.Errorf("answer %+v", k)
				}
				wantEOF(t, c)
			})
		})
		t.Run("no agent", func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				c := w.client(ext)
				c.Send(dial(42))
				if k := c.ExpectOn(wire.DialResponse, 0); k.DialID != 42 || k.Error != "No agent available" || k.Reason != reason(wire.ReasonNoAgent) {
					t.Errorf("answer %+v", k)
				}
				wantEOF(t, c)
			})
		})
		t.Run("no answer from the agent", func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a, c := w.agent(), w.client(ext)
				c.Send(dial(42))
				k := a.ExpectDial("h:1")
				start := time.Now()
				if k := c.ExpectOn(wire.DialResponse, 0); k.DialID != 42 || k.Error != "timed out waiting for backend dial" || k.Reason != reason(wire.ReasonBackendTimeout) {
					t.Errorf("answer %+v", k)
				}
				if d := time.Since(start); d != 7*time.Second {
					t.Errorf("after %v", d)
				}
				wantEOF(t, c)
				a.Expect(wire.DialClose)
				a.Send(wire.Packet{Type: wire.DialResponse, DialID: k.DialID, ConnectionID: 1})
				a.ExpectOn(wire.CloseRequest, 1)
			})
		})
		t.Run("agent lost", func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a, c := w.agent(), w.client(ext)
				c.Send(dial(42))
				a.ExpectDial("h:1")
				start := time.Now()
				a.Close()
				if k := c.ExpectOn(wire.DialResponse, 0); k.DialID != 42 || k.Error == "" || ext != 0 && k.Reason == 0 {
					t.Errorf("answer %+v", k)
				}
				if d := time.Since(start); d > time.Second/2 {
					t.Errorf("after %v", d)
				}
				wantEOF(t, c)
			})
		})
	}
	t.Run("protocol", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			a := w.agent()
			for _, protocol := range []string{"udp", "unix", "", "TCP"} {
				c := w.client(wire.ExtReason)
				c.Send(wire.Packet{Type: wire.DialRequest, Protocol: protocol, Address: "h:1", DialID: 42})
				if k := c.ExpectOn(wire.DialResponse, 0); k.Error == "" || k.Reason != wire.ReasonProtocol {
					t.Errorf("answer %+v", k)
				}
				wantEOF(t, c)
			}
			synctest.Wait()
			a.ExpectNothing()
		})
	})
}

// The client gives up a dial: nobody hears of it any more, and what the agent has
// opened meanwhile is closed.
func TestGivenUpDials(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(c *tunneltest.ClientPeer)
	}{
		{"DIAL_CLS", func(c *tunneltest.ClientPeer) { c.Send(wire.Packet{Type: wire.DialClose, DialID: 42}) }},
		{"half-close", func(c *tunneltest.ClientPeer) { c.CloseSend() }},
		{"cancelled", func(c *tunneltest.ClientPeer) { c.Close() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a, c := w.agent(), w.client(0)
				c.Send(dial(42))
				k := a.ExpectDial("h:1")
				c.Send(wire.Packet{Type: wire.DialClose, DialID: 41}) // another's
				synctest.Wait()
				a.ExpectNothing()
				tt.end(c)
				if d := a.Expect(wire.DialClose); d.DialID != k.DialID {
					t.Errorf("cancelled dial %d, want %d", d.DialID, k.DialID)
				}
				if tt.name != "cancelled" {
					wantEOF(t, c)
				}
				synctest.Wait()
				if w.relay.Pending() != 0 || w.obs.streams() != 0 {
					t.Errorf("%d dials pend, %d streams", w.relay.Pending(), w.obs.streams())
				}
				a.Send(wire.Packet{Type: wire.DialResponse, DialID: k.DialID, ConnectionID: 1})
				a.ExpectOn(wire.CloseRequest, 1)
			})
		})
	}
}

func TestLostClients(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(w *world, c *tunneltest.ClientPeer)
	}{
		{"half-close", func(_ *world, c *tunneltest.ClientPeer) { c.CloseSend() }},
		{"cancelled", func(_ *world, c *tunneltest.ClientPeer) { c.Close() }},
		{"connection cut", func(w *world, _ *tunneltest.ClientPeer) { w.net.Cut("client", "front") }},
		{"late DIAL_CLS", func(_ *world, c *tunneltest.ClientPeer) { c.Send(wire.Packet{Type: wire.DialClose, DialID: 42}) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a, c := w.agent(), w.client(0)
				w.open(c, a, 1)
				start := time.Now()
				tt.end(w, c)
				a.ExpectOn(wire.CloseRequest, 1)
				if d := time.Since(start); d > time.Second {
					t.Errorf("told after %v", d)
				}
				a.Send(closeRsp(1))
				pass(holdTime + partingTime)
				synctest.Wait()
				if w.obs.streams() != 0 {
					t.Error("the stream is still there")
				}
			})
		})
	}
}

// An accepted CLOSE_REQ stands, whatever becomes of the stream: what was sent
// before it still reaches the endpoint.
func TestStreamLostAfterClose(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, c := w.newAgent(), w.client(0)
		c.Send(dial(42))
		k := a.ExpectDial("h:1")
		a.Send(wire.Packet{Type: wire.DialResponse, DialID: k.DialID, ConnectionID: 1, Window: 4})
		c.ExpectOn(wire.DialResponse, 1)
		c.Send(data(1, "12345678"), closeReq(1))
		a.ExpectData(1, []byte("1234"))
		synctest.Wait()
		c.Close()
		synctest.Wait()
		a.Send(wire.Packet{Type: wire.Credit, ConnectionID: 1, Window: 100})
		a.ExpectData(1, []byte("5678"))
		if k := a.ExpectOn(wire.CloseRequest, 1); k.Reason != wire.ReasonNone {
			t.Errorf("closed with %v", k.Reason)
		}
		a.Send(closeRsp(1))
	})
}

func TestAgentLost(t *testing.T) {
	for _, ext := range []wire.Extensions{0, wire.ExtReason} {
		bubble(t, func(t *testing.T, w *world) {
			a, c := w.agent(), w.client(ext)
			w.open(c, a, 1)
			c.Send(data(1, "x"))
			a.ExpectData(1, []byte("x"))
			a.SendData(1, []byte("before"))
			synctest.Wait()
			a.Close()
			c.ExpectData(1, []byte("before"))
			k := c.ExpectOn(wire.CloseResponse, 1)
			if ext == 0 && (k.Error != "" || k.Reason != 0) || ext != 0 && k.Reason != wire.ReasonLinkLost {
				t.Errorf("closed with %+v", k)
			}
			wantEOF(t, c)
		})
	}
}

func TestNoExtensionsNoHeaders(t *testing.T) {
	for _, tt := range []struct {
		name                  string
		server, client, agree wire.Extensions
	}{
		{"new client", wire.AllExtensions, wire.ExtHalfClose | wire.ExtReason, wire.ExtHalfClose | wire.ExtReason},
		{"client that lists everything", wire.AllExtensions, wire.AllExtensions, wire.ExtHalfClose | wire.ExtReason},
		{"reason only", wire.AllExtensions, wire.ExtReason, wire.ExtReason},
		{"extensions disabled", 0, wire.AllExtensions, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubbleWith(t, tt.server, nil, func(t *testing.T, w *world) {
				c := w.client(tt.client)
				if tt.server == 0 {
					c.Send(dial(1)) // headers come with the answer
				}
				if got := c.Extensions(); got != tt.agree {
					t.Errorf("agreed on %v, want %v", got, tt.agree)
				}
			})
		})
	}
}

func TestHalfClose(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, c := w.newAgent(), w.client(wire.ExtHalfClose|wire.ExtReason)
		c.Send(dial(42))
		k := a.ExpectDial("h:1")
		if !k.CanHalfClose {
			t.Error("the agent was not told that the client can half-close")
		}
		a.Send(wire.Packet{Type: wire.DialResponse, DialID: k.DialID, ConnectionID: 1, Window: 1 << 20})
		c.ExpectOn(wire.DialResponse, 1)
		c.Send(data(1, "question"), wire.Packet{Type: wire.HalfClose, ConnectionID: 1})
		a.ExpectData(1, []byte("question"))
		a.ExpectOn(wire.HalfClose, 1)
		a.SendData(1, []byte("answer"))
		c.ExpectData(1, []byte("answer"))
		a.Send(wire.Packet{Type: wire.HalfClose, ConnectionID: 1})
		c.ExpectOn(wire.HalfClose, 1)
		c.Send(closeReq(1))
		a.ExpectOn(wire.CloseRequest, 1)
		a.Send(closeRsp(1))
		if k := c.ExpectOn(wire.CloseResponse, 1); k.Reason != 0 {
			t.Errorf("closed with %v", k.Reason)
		}
		wantEOF(t, c)
	})
}

func TestOldClientsCannotHalfClose(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, c := w.newAgent(), w.client(0)
		c.Send(dial(42))
		k := a.ExpectDial("h:1")
		if k.CanHalfClose {
			t.Error("the agent was told that an old client can half-close")
		}
		a.Send(wire.Packet{Type: wire.DialResponse, DialID: k.DialID, ConnectionID: 1, Window: 1 << 20})
		c.ExpectOn(wire.DialResponse, 1)
		c.Send(wire.Packet{Type: wire.HalfClose, ConnectionID: 1}, data(1, "more"))
		a.ExpectData(1, []byte("more"))
	})
}
