package link

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

func popAll(o *outbox) []wire.Packet {
	var out []wire.Packet
	for {
		var p wire.Packet
		if !o.pop(&p) {
			return out
		}
		out = append(out, p)
	}
}

func TestOutboxCoalesces(t *testing.T) {
	o := &outbox{max: 100}
	for _, p := range []wire.Packet{
		{Type: wire.DialResponse, ConnectionID: 1},
		{Type: wire.Credit, ConnectionID: 1, Window: 5},
		{Type: wire.Credit, ConnectionID: 2, Window: 7},
		{Type: wire.Pong, Nonce: 1},
		{Type: wire.Credit, ConnectionID: 1, Window: 6},
		{Type: wire.CloseRequest, ConnectionID: 1, Reason: wire.ReasonReset},
		{Type: wire.CloseRequest, ConnectionID: 1},
		{Type: wire.CloseRequest, ConnectionID: 2},
		{Type: wire.CloseRequest, ConnectionID: 2, Reason: wire.ReasonAborted},
		{Type: wire.CloseResponse, ConnectionID: 1},
		{Type: wire.Pong, Nonce: 2},
		{Type: wire.DialClose, DialID: 1},
		{Type: wire.DialClose, DialID: 2},
		{Type: wire.DialClose, DialID: 1},
		{Type: wire.Drain},
		{Type: wire.Drain},
		{Type: wire.ServerCount, Count: 1},
		{Type: wire.ServerCount, Count: 3},
		{Type: wire.DialRequest, DialID: 9},
		{Type: wire.DialRequest, DialID: 9},
	} {
		if err := o.push(p); err != nil {
			t.Fatal(err)
		}
	}
	want := []wire.Packet{
		{Type: wire.DialResponse, ConnectionID: 1},
		{Type: wire.Credit, ConnectionID: 1, Window: 11},
		{Type: wire.Credit, ConnectionID: 2, Window: 7},
		{Type: wire.Pong, Nonce: 2},
		{Type: wire.CloseRequest, ConnectionID: 1, Reason: wire.ReasonReset},
		{Type: wire.CloseRequest, ConnectionID: 2, Reason: wire.ReasonAborted},
		{Type: wire.CloseResponse, ConnectionID: 1},
		{Type: wire.DialClose, DialID: 1},
		{Type: wire.DialClose, DialID: 2},
		{Type: wire.Drain},
		{Type: wire.ServerCount, Count: 3},
		{Type: wire.DialRequest, DialID: 9},
		{Type: wire.DialRequest, DialID: 9},
	}
	if got := popAll(o); !slices.EqualFunc(got, want, samePacket) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if o.weight != 0 || len(o.at) != 0 {
		t.Errorf("empty outbox has weight %d, %d keys", o.weight, len(o.at))
	}
}

func samePacket(a, b wire.Packet) bool {
	return a.Type == b.Type && a.DialID == b.DialID && a.ConnectionID == b.ConnectionID && a.Error == b.Error &&
		a.Window == b.Window && a.Nonce == b.Nonce && a.Count == b.Count && a.Reason == b.Reason
}

func TestOutboxCreditSumIsClipped(t *testing.T) {
	o := &outbox{max: 1}
	for range 2 {
		if err := o.push(wire.Packet{Type: wire.Credit, Window: math.MaxInt64 - 1}); err != nil {
			t.Fatal(err)
		}
	}
	if got := popAll(o); len(got) != 1 || got[0].Window != math.MaxInt64 {
		t.Errorf("got %+v", got)
	}
}

func TestOutboxIsBounded(t *testing.T) {
	o := &outbox{max: 8}
	for i := range 8 {
		if err := o.push(wire.Packet{Type: wire.DialRequest, DialID: wire.DialID(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.push(wire.Packet{Type: wire.Drain}); !errors.Is(err, ErrOutboxFull) {
		t.Errorf("got %v, want ErrOutboxFull", err)
	}
	popAll(o)
	long := strings.Repeat("x", 9000) // long texts count for what they hold
	if err := o.push(wire.Packet{Type: wire.DialResponse, Error: long}); !errors.Is(err, ErrOutboxFull) {
		t.Errorf("got %v, want ErrOutboxFull", err)
	}
}

func TestOutboxGivesMemoryBack(t *testing.T) {
	o := &outbox{max: 10000}
	for i := range 5000 {
		_ = o.push(wire.Packet{Type: wire.CloseRequest, ConnectionID: wire.ConnectionID(i)})
	}
	popAll(o)
	if len(o.ring) > outboxKeep || o.at != nil {
		t.Errorf("an empty outbox keeps %d slots", len(o.ring))
	}
}

// TestOutboxAgainstModel compares it with a slice that is searched.
func TestOutboxAgainstModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	o := &outbox{max: 50}
	var model []wire.Packet
	types := []wire.PacketType{wire.Credit, wire.CloseRequest, wire.CloseResponse, wire.Pong, wire.DialRequest, wire.DialClose}
	for range 20000 {
		if rng.IntN(5) < 2 {
			var p wire.Packet
			if ok := o.pop(&p); ok != (len(model) > 0) {
				t.Fatalf("pop = %v with %d in the model", ok, len(model))
			} else if ok {
				if !samePacket(p, model[0]) {
					t.Fatalf("got %+v, want %+v", p, model[0])
				}
				model = model[1:]
			}
			continue
		}
		p := wire.Packet{Type: types[rng.IntN(len(types))], Window: rng.Int64N(100)}
		p.ConnectionID, p.DialID = wire.ConnectionID(rng.IntN(8)), wire.DialID(rng.IntN(8))
		key, keyed := keyOf(&p)
		i := slices.IndexFunc(model, func(q wire.Packet) bool {
			k, ok := keyOf(&q)
			return ok && keyed && k == key
		})
		err := o.push(p)
		switch {
		case i >= 0:
			absorb(&model[i], p)
		case len(model) < 50:
			model = append(model, p)
		case err == nil:
			t.Fatal("accepted more than max")
		}
	}
}
