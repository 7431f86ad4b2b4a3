package tunneltest

import (
	"bytes"
	"context"
	"strings"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Next returns the next packet, whatever it is; it fails the test if the stream
// ends instead or nothing comes within Patience.
func (p *Peer) Next() wire.Packet {
	p.t.Helper()
	return p.next("a packet")
}

// Expect returns the next packet, which must be of type t.
func (p *Peer) Expect(t wire.PacketType) wire.Packet {
	p.t.Helper()
	k := p.next(t.String())
	if k.Type != t {
		p.t.Fatalf("got %s, want %s", describe(k), t)
	}
	return k
}

// ExpectDial returns the next packet, a DIAL_REQ for address.
func (p *Peer) ExpectDial(address string) wire.Packet {
	p.t.Helper()
	k := p.Expect(wire.DialRequest)
	if k.Address != address || k.Protocol != "tcp" {
		p.t.Fatalf("got %s for protocol %q, want a dial to %s", describe(k), k.Protocol, address)
	}
	return k
}

// ExpectOn returns the next packet, which must be of type t and about id.
func (p *Peer) ExpectOn(t wire.PacketType, id wire.ConnectionID) wire.Packet {
	p.t.Helper()
	k := p.Expect(t)
	if k.ConnectionID != id {
		p.t.Fatalf("got %s, want it on connection %d", describe(k), id)
	}
	return k
}

// ExpectData checks that the next packets are DATA on id which together are
// want, however it was cut.
func (p *Peer) ExpectData(id wire.ConnectionID, want []byte) {
	p.t.Helper()
	for off := 0; off < len(want); {
		k := p.ExpectOn(wire.Data, id)
		b := k.Payload.Bytes()
		if !bytes.HasPrefix(want[off:], b) {
			p.t.Fatalf("connection %d: after %d bytes came other ones than were expected, or more than %d in all", id, off, len(want))
		}
		off += len(b)
	}
}

// WaitCredit waits until CREDIT packets have granted n bytes on id in all.
func (p *Peer) WaitCredit(id wire.ConnectionID, n int64) {
	p.t.Helper()
	p.await("more credit", func() bool { return p.credit[id] >= n })
}

// ExpectEnd waits for the end of the stream and returns how it ended: io.EOF or
// a status. Packets that come before it fail the test.
func (p *Peer) ExpectEnd() error {
	p.t.Helper()
	p.await("the end", func() bool { return p.ended || len(p.arrived) > 0 })
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.arrived) > 0 {
		p.t.Fatalf("got %s, want the end of the stream", describe(p.arrived[0]))
	}
	return p.err
}

// ExpectNothing checks that no packet has arrived and the stream goes on. It
// does not wait: settle first, in a bubble with synctest.Wait.
func (p *Peer) ExpectNothing() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.arrived) > 0 {
		p.t.Fatalf("got %s, want nothing", p.list())
	}
	if p.ended {
		p.t.Fatalf("the stream has ended: %v", p.err)
	}
}

// Skip drops packets that have arrived, of the given types or, with none given,
// all of them, and returns them. It does not wait.
func (p *Peer) Skip(types ...wire.PacketType) []wire.Packet {
	p.mu.Lock()
	defer p.mu.Unlock()
	var dropped, kept []wire.Packet
	for _, k := range p.arrived {
		drop := len(types) == 0
		for _, t := range types {
			drop = drop || k.Type == t
		}
		if drop {
			dropped = append(dropped, k)
		} else {
			kept = append(kept, k)
		}
	}
	p.arrived = kept
	return dropped
}

// next takes the first packet.
func (p *Peer) next(want string) wire.Packet {
	p.t.Helper()
	p.await(want, func() bool { return len(p.arrived) > 0 })
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.arrived[0]
	p.arrived = p.arrived[1:]
	return k
}

// await waits until ok, called under mu, is true.
func (p *Peer) await(want string, ok func() bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	for {
		p.mu.Lock()
		if ok() {
			p.mu.Unlock()
			return
		}
		if p.ended {
			defer p.mu.Unlock()
			p.t.Fatalf("the stream ended while waiting for %s: %v", want, p.err)
		}
		changed := p.changed.wait()
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			p.mu.Lock()
			defer p.mu.Unlock()
			p.t.Fatalf("no %s within %v; waiting: [%s]", want, Patience, p.list())
		}
	}
}

// list describes what has arrived. mu is held.
func (p *Peer) list() string {
	lines := make([]string, 0, len(p.arrived))
	for _, k := range p.arrived {
		lines = append(lines, describe(k))
	}
	return strings.Join(lines, "; ")
}
