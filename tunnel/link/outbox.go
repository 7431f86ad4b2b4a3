package link

import (
	"math"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// outbox is the queue of control packets: first in, first out, except that a
// packet is absorbed by one that waits already where one of them says it all.
// So whatever a peer provokes, at most one close per connection, one credit sum
// per tunnel and one pong wait; the rest is bounded by max. Not safe for
// concurrent use.
type outbox struct {
	max    int // in units of weight
	weight int
	ring   []wire.Packet // a circular buffer: count packets from head on
	head   int
	count  int
	popped uint64            // sequence number of the packet at head
	at     map[outKey]uint64 // sequence numbers of the waiting packets that can absorb
}

// outKey names what can be absorbed: one connection or dial and one packet type.
type outKey struct {
	t  wire.PacketType
	id int64
}

// keyOf returns p's key, or false for a packet that always travels by itself.
func keyOf(p *wire.Packet) (outKey, bool) {
	switch p.Type {
	case wire.Credit, wire.CloseRequest, wire.CloseResponse, wire.HalfClose:
		return outKey{p.Type, int64(p.ConnectionID)}, true
	case wire.DialClose:
		return outKey{p.Type, int64(p.DialID)}, true
	case wire.Drain, wire.Ready, wire.Ping, wire.Pong, wire.ServerCount:
		return outKey{p.Type, 0}, true
	}
	return outKey{}, false
}

// absorb makes old, which waits already, say what p says. Sums are clipped;
// where the latest counts, it wins; an abort makes an orderly close abnormal;
// otherwise the first says it all.
func absorb(old *wire.Packet, p wire.Packet) {
	switch p.Type {
	case wire.Credit:
		if old.Window > math.MaxInt64-p.Window {
			old.Window = math.MaxInt64
			return
		}
		old.Window += p.Window
	case wire.CloseRequest, wire.CloseResponse:
		if old.Reason == wire.ReasonNone {
			old.Reason = p.Reason
		}
	case wire.Ping, wire.Pong, wire.ServerCount:
		*old = p
	}
}

// weigh counts a packet against max: long texts count for more than one.
func weigh(p *wire.Packet) int {
	return 1 + (len(p.Protocol)+len(p.Address)+len(p.Error))/1024
}

// push queues p, or returns ErrOutboxFull.
func (o *outbox) push(p wire.Packet) error {
	key, keyed := keyOf(&p)
	if keyed {
		if seq, ok := o.at[key]; ok {
			absorb(o.slot(int(seq-o.popped)), p)
			return nil
		}
	}
	w := weigh(&p)
	if o.weight+w > o.max {
		return ErrOutboxFull
	}
	o.weight += w
	o.grow()
	*o.slot(o.count) = p
	if keyed {
		if o.at == nil {
			o.at = make(map[outKey]uint64)
		}
		o.at[key] = o.popped + uint64(o.count)
	}
	o.count++
	return nil
}

// pop takes the oldest packet into p and reports whether there was one.
func (o *outbox) pop(p *wire.Packet) bool {
	if o.count == 0 {
		return false
	}
	s := o.slot(0)
	*p = *s
	*s = wire.Packet{}
	if key, ok := keyOf(p); ok {
		delete(o.at, key)
	}
	o.weight -= weigh(p)
	o.head = (o.head + 1) & (len(o.ring) - 1)
	o.popped++
	o.count--
	if o.count == 0 && len(o.ring) > outboxKeep {
		o.clear() // a burst is over: give its memory back
	}
	return true
}

func (o *outbox) empty() bool { return o.count == 0 }

// clear drops everything.
func (o *outbox) clear() {
	*o = outbox{max: o.max, popped: o.popped + uint64(o.count)}
}

// slot is the i-th waiting packet's place.
func (o *outbox) slot(i int) *wire.Packet {
	return &o.ring[(o.head+i)&(len(o.ring)-1)]
}

// Sizes of the circular buffer, powers of two: at first, and the most that an
// empty outbox keeps.
const (
	outboxFirst = 4
	outboxKeep  = 64
)

func (o *outbox) grow() {
	if o.count < len(o.ring) {
		return
	}
	bigger := make([]wire.Packet, max(outboxFirst, 2*len(o.ring)))
	n := copy(bigger, o.ring[o.head:])
	copy(bigger[n:], o.ring[:o.head])
	o.ring, o.head = bigger, 0
}
