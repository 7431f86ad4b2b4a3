package frontgrpc

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// FuzzAnyPackets lets a client and an agent send whatever they like in whatever
// order. Nothing may panic or hang, and when both are gone nothing may be left.
func FuzzAnyPackets(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		script := make([]byte, 60)
		for i := range script {
			script[i] = byte(r.Uint32())
		}
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 300 {
			return
		}
		bubble(t, func(t *testing.T, w *world) { play(t, w, script) })
	})
}

// play sends what script says: a byte for the sender and the type, one for the
// IDs, one for a pause.
func play(t *testing.T, w *world, script []byte) {
	a := w.newAgent()
	c, end := w.stream("client", "front", tunneltest.ProxyMethod, nil)
	defer end()
	go func() {
		for c.RecvMsg(&wire.Packet{}) == nil {
		}
	}()
	_ = c.SendMsg(&wire.Packet{Type: wire.DialRequest, Protocol: "tcp", Address: "h:1", DialID: 1})
	k := a.ExpectDial("h:1")
	for ; len(script) >= 3; script = script[3:] {
		p := wire.Packet{
			Type:         wire.PacketType(script[0] & 7),
			ConnectionID: wire.ConnectionID(script[1] & 3),
			DialID:       wire.DialID(script[1] >> 4 & 3),
			Protocol:     "tcp", Address: "h:1",
			Payload: wire.PayloadBytes(make([]byte, int(script[1])*64)),
			Window:  int64(script[1]) << 10,
			Reason:  wire.Reason(script[1] >> 2),
		}
		if script[0]&8 != 0 {
			p.Type = 64 + wire.PacketType(script[0]&7)
		}
		if script[0]&16 != 0 {
			if p.Type == wire.DialResponse {
				p.DialID = k.DialID
			}
			a.Send(p)
		} else if c.SendMsg(&p) != nil {
			break
		}
		if script[2]&1 != 0 {
			synctest.Wait()
		}
		if script[2]&6 == 6 {
			pass(time.Duration(script[2]) * time.Millisecond)
		}
	}
	synctest.Wait()
	end()
	pass(lossGrace)
	synctest.Wait()
	if w.obs.streams() != 0 || w.relay.Pending() != 0 {
		t.Errorf("%d streams and %d dials outlive their client", w.obs.streams(), w.relay.Pending())
	}
	a.Close()
	pass(time.Second)
	if w.relay.Tunnels() != 0 {
		t.Errorf("%d tunnels outlive client and agent", w.relay.Tunnels())
	}
}
