package frontgrpc

import (
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// pkt is a packet that a test wants, in short.
type pkt struct {
	t    wire.PacketType
	id   wire.ConnectionID
	dial wire.DialID
	text string
}

// What breaks the protocol before anything was dialled.
func TestRulesBeforeTheDial(t *testing.T) {
	for _, tt := range []struct {
		name string
		send []wire.Packet
		raw  []byte
		want []pkt
		code codes.Code // of the stream's end
		goes bool       // the stream goes on
	}{
		{name: "data", send: []wire.Packet{data(7, "x")}, want: []pkt{{wire.CloseResponse, 7, 0, textNotDialed}}},
		{name: "data for connection 0", send: []wire.Packet{data(0, "x")}, goes: true},
		{name: "close", send: []wire.Packet{closeReq(7), closeReq(8)}, goes: true,
			want: []pkt{{wire.CloseResponse, 7, 0, textNothingToShut}, {wire.CloseResponse, 8, 0, textNothingToShut}}},
		{name: "close of connection 0", send: []wire.Packet{closeReq(0)}, goes: true},
		{name: "DIAL_CLS", send: []wire.Packet{{Type: wire.DialClose, DialID: 3}}, goes: true},
		{name: "what only others send", goes: true, send: []wire.Packet{
			{Type: wire.DialResponse, DialID: 1, ConnectionID: 1}, closeRsp(1), {Type: wire.Drain}, {Type: 99},
			{Type: wire.Ping, Nonce: 1}, {Type: wire.Pong}, {Type: wire.Ready}, {Type: wire.ServerCount, Count: 3},
			{Type: wire.Credit, ConnectionID: 1, Window: 5}, {Type: wire.HalfClose, ConnectionID: 1}}},
		{name: "empty message", raw: []byte{}, code: codes.InvalidArgument},
		{name: "DATA without its payload", raw: []byte{0x08, 0x04}, code: codes.InvalidArgument},
		{name: "CLOSE_REQ without its payload", raw: []byte{0x08, 0x02}, code: codes.InvalidArgument},
		{name: "DIAL_CLS without its payload", raw: []byte{0x08, 0x05}, code: codes.InvalidArgument},
		{name: "no message at all", raw: []byte{0xff}, code: codes.Internal},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a, c := w.agent(), w.client(0)
				c.Send(tt.send...)
				if tt.raw != nil {
					c.SendRaw(tt.raw)
				}
				for _, want := range tt.want {
					k := c.Next()
					if got := (pkt{k.Type, k.ConnectionID, k.DialID, k.Error}); got != want {
						t.Errorf("answer %+v, want %+v", got, want)
					}
				}
				if !tt.goes {
					if err := c.ExpectEnd(); tt.code == codes.OK && err.Error() != "EOF" || tt.code != codes.OK && status.Code(err) != tt.code {
						t.Errorf("ended with %v", err)
					}
					return
				}
				synctest.Wait()
				c.ExpectNothing()
				a.ExpectNothing()
				w.open(c, a, 1)
			})
		})
	}
}

// What breaks the protocol while the dial is pending.
func TestRulesDuringTheDial(t *testing.T) {
	failed := func(text string) pkt { return pkt{wire.DialResponse, 0, 42, text} }
	for _, tt := range []struct {
		name string
		send []wire.Packet
		raw  []byte
		want []pkt
	}{
		{"data", []wire.Packet{data(7, "x")}, nil, []pkt{{wire.CloseResponse, 7, 0, textNotDialed}, failed(textEarlyData)}},
		{"close", []wire.Packet{closeReq(7)}, nil, []pkt{{wire.CloseResponse, 7, 0, textNothingToShut}, failed(textEarlyClose)}},
		{"second dial", []wire.Packet{dial(43)}, nil, []pkt{{wire.DialResponse, 0, 43, textSecondDial}, failed(textSecondDial)}},
		{"same dial again", []wire.Packet{dial(42)}, nil, []pkt{failed(textSecondDial), failed(textSecondDial)}},
		{"empty message", nil, []byte{}, []pkt{failed(textNoPayload)}},
		{"DATA with another payload", nil, []byte{0x08, 0x04, 0x32, 0x00}, []pkt{failed(textNoPayload)}},
		{"passed over", []wire.Packet{data(0, "x"), closeReq(0), closeRsp(1), {Type: 99}, {Type: wire.Drain}, {Type: wire.DialClose, DialID: 9}, {Type: wire.DialResponse, DialID: 42, ConnectionID: 4}}, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a, c := w.agent(), w.client(0)
				c.Send(dial(42))
				k := a.ExpectDial("h:1")
				c.Send(tt.send...)
				if tt.raw != nil {
					c.SendRaw(tt.raw)
				}
				if tt.want == nil {
					synctest.Wait()
					a.Send(wire.Packet{Type: wire.DialResponse, DialID: k.DialID, ConnectionID: 1})
					c.ExpectOn(wire.DialResponse, 1)
					return
				}
				for _, want := range tt.want {
					k := c.Next()
					if got := (pkt{k.Type, k.ConnectionID, k.DialID, k.Error}); got != want {
						t.Errorf("answer %+v, want %+v", got, want)
					}
				}
				wantEOF(t, c)
				if d := a.Expect(wire.DialClose); d.DialID != k.DialID {
					t.Errorf("cancelled %d", d.DialID)
				}
			})
		})
	}
}

// What breaks the protocol on an open tunnel; another one beside it goes on.
func TestRulesOnATunnel(t *testing.T) {
	closed := func(text string) pkt { return pkt{wire.CloseResponse, 2, 0, text} }
	for _, tt := range []struct {
		name string
		ext  wire.Extensions
		send []wire.Packet
		raw  []byte
		want []pkt
	}{
		{"data for another connection", 0, []wire.Packet{data(1, "x")}, nil, []pkt{{wire.CloseResponse, 1, 0, textMismatched}, closed(textMismatched)}},
		{"data for a connection that nobody has", 0, []wire.Packet{data(-5, "x")}, nil, []pkt{{wire.CloseResponse, -5, 0, textMismatched}, closed(textMismatched)}},
		{"close of another connection", 0, []wire.Packet{closeReq(1)}, nil, []pkt{{wire.CloseResponse, 1, 0, textMismatched}, closed(textMismatched)}},
		{"half-close of another connection", wire.ExtHalfClose, []wire.Packet{{Type: wire.HalfClose, ConnectionID: 1}}, nil, []pkt{{wire.CloseResponse, 1, 0, textMismatched}, closed(textMismatched)}},
		{"data after half-close", wire.ExtHalfClose, []wire.Packet{{Type: wire.HalfClose, ConnectionID: 2}, data(2, "x")}, nil, []pkt{closed(textLateData)}},
		{"second dial", 0, []wire.Packet{dial(43)}, nil, []pkt{{wire.DialResponse, 0, 43, textSecondDial}, closed(textSecondDial)}},
		{"DATA without its payload", 0, nil, []byte{0x08, 0x04}, []pkt{closed(textNoPayload)}},
		{"empty message", 0, nil, []byte{}, []pkt{closed(textNoPayload)}},
		{"passed over", wire.ExtHalfClose, []wire.Packet{data(0, "x"), closeReq(0), closeRsp(2), {Type: 99}, {Type: wire.Drain}, {Type: wire.DialClose, DialID: 9},
			{Type: wire.Credit, ConnectionID: 2, Window: -1}, {Type: wire.HalfClose}, data(2, "")}, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a, c, other := w.agent(), w.client(tt.ext), w.client(0)
				w.open(other, a, 1)
				w.open(c, a, 2)
				c.Send(tt.send...)
				if tt.raw != nil {
					c.SendRaw(tt.raw)
				}
				if tt.want == nil {
					c.Send(data(2, "goes on"))
					a.ExpectData(2, []byte("goes on"))
					return
				}
				for _, want := range tt.want {
					k := c.Next()
					if got := (pkt{k.Type, k.ConnectionID, k.DialID, k.Error}); got != want {
						t.Errorf("answer %+v, want %+v", got, want)
					}
				}
				wantEOF(t, c)
				a.Skip(wire.HalfClose)
				a.ExpectOn(wire.CloseRequest, 2)
				a.Send(closeRsp(2))
				other.Send(data(1, "goes on"))
				a.ExpectData(1, []byte("goes on"))
			})
		})
	}
}

// An agent's ID is its own: two streams with the same dial ID and, on two agents,
// the same connection ID do not meet.
func TestSameIDs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, c, d := w.agent(), w.client(0), w.client(0)
		c.Send(dial(42))
		kc := a.ExpectDial("h:1")
		d.Send(dial(42))
		kd := a.ExpectDial("h:1")
		if kc.DialID == kd.DialID {
			t.Fatal("the agent was given the same dial ID twice")
		}
		a.Send(wire.Packet{Type: wire.DialResponse, DialID: kd.DialID, ConnectionID: 1})
		d.ExpectOn(wire.DialResponse, 1)
		synctest.Wait()
		c.ExpectNothing()
		a.Send(wire.Packet{Type: wire.DialResponse, DialID: kc.DialID, Error: "no"})
		if k := c.ExpectOn(wire.DialResponse, 0); k.DialID != 42 {
			t.Errorf("answer %+v", k)
		}
	})
}
