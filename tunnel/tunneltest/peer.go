package tunneltest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Patience is how long a Peer's expectations wait before they fail the test; in
// a bubble it is fake time. Anything that takes real time is hung by then.
const Patience = 30 * time.Second

// Peer is one scripted end of a stream of packets. It reads all the time, into
// memory without bound, so that the other end never waits for the script; see
// SetReading. Its methods belong to the test's goroutine and fail the test.
//
// So that a script is about what it is about, the peer answers every PING by
// itself, and takes in PONG and CREDIT silently; see SetPongs and Credit. It
// does none of this to a peer that sends such packets without an extension: the
// Peer knows no extensions, only packets.
type Peer struct {
	// Fixed after construction.
	t      testing.TB
	stream link.Stream
	cancel context.CancelFunc
	done   chan struct{} // the reader is gone

	sendMu sync.Mutex // one SendMsg at a time: the script's and the pongs

	// Guarded by mu.
	mu      sync.Mutex
	changed broadcast
	arrived []wire.Packet
	credit  map[wire.ConnectionID]int64
	pings   int
	mute    bool // leave pings unanswered
	paused  bool // do not read
	err     error
	ended   bool
}

// startPeer starts the reader. cancel ends the stream.
func startPeer(t testing.TB, stream link.Stream, cancel context.CancelFunc) *Peer {
	p := &Peer{t: t, stream: stream, cancel: cancel, done: make(chan struct{}), credit: map[wire.ConnectionID]int64{}}
	go p.read()
	t.Cleanup(p.Close)
	return p
}

func (p *Peer) read() {
	defer close(p.done)
	for {
		p.waitReading()
		var k wire.Packet
		err := p.stream.RecvMsg(&k)
		if err == nil && k.Payload.Len() > 0 {
			b := k.Payload.Bytes() // plain memory: a script owns no buffers
			k.Payload.Free()
			k.Payload = wire.PayloadBytes(b)
		}
		if err == nil && k.Type == wire.Ping && !p.muted() {
			// Fails only if the stream ends, which RecvMsg tells.
			_ = p.send(&wire.Packet{Type: wire.Pong, Nonce: k.Nonce})
		}
		p.mu.Lock()
		switch {
		case err != nil:
			p.err, p.ended = err, true
		case k.Type == wire.Ping:
			p.pings++
		case k.Type == wire.Pong:
		case k.Type == wire.Credit:
			p.credit[k.ConnectionID] += k.Window
		default:
			p.arrived = append(p.arrived, k)
		}
		p.changed.wake()
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (p *Peer) muted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mute
}

func (p *Peer) waitReading() {
	for {
		p.mu.Lock()
		if !p.paused {
			p.mu.Unlock()
			return
		}
		changed := p.changed.wait()
		p.mu.Unlock()
		<-changed
	}
}

// SetReading makes the peer stop reading, or go on: with false the stream fills
// up, as when an old agent waits for a full connection. One packet may still be
// taken.
func (p *Peer) SetReading(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = !on
	p.changed.wake()
}

// SetPongs makes the peer leave PINGs unanswered, or answer them again.
func (p *Peer) SetPongs(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = !on
}

// Pings is how many PINGs have arrived.
func (p *Peer) Pings() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pings
}

// Credit is the sum of what CREDIT packets have granted on id, in bytes.
func (p *Peer) Credit(id wire.ConnectionID) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.credit[id]
}

// Send sends packets, in order. It waits while the stream is full, and fails the
// test if the stream has ended. It takes ownership of the payloads.
func (p *Peer) Send(packets ...wire.Packet) {
	p.t.Helper()
	for i := range packets {
		err := p.send(&packets[i])
		packets[i].Payload.Free()
		if err != nil {
			p.t.Fatalf("sending %s: %v", describe(packets[i]), err)
		}
	}
}

// SendData sends data on id, in DATA packets of at most 32 KiB. It minds no credit.
func (p *Peer) SendData(id wire.ConnectionID, data []byte) {
	p.t.Helper()
	for len(data) > 0 {
		n := min(len(data), link.MaxData)
		p.Send(wire.Packet{Type: wire.Data, ConnectionID: id, Payload: wire.PayloadBytes(data[:n])})
		data = data[n:]
	}
}

// SendRaw sends one message of these bytes, which need not be a packet.
func (p *Peer) SendRaw(message []byte) {
	p.t.Helper()
	if err := p.send(raw(message)); err != nil {
		p.t.Fatalf("sending raw bytes: %v", err)
	}
}

func (p *Peer) send(m any) error {
	p.sendMu.Lock()
	defer p.sendMu.Unlock()
	return p.stream.SendMsg(m)
}

// Close ends the stream abruptly: a client's or agent's is cancelled, a server's
// handler returns an error. The test's end does it too.
func (p *Peer) Close() {
	p.cancel()
	p.SetReading(true)
	<-p.done
}

// raw is an encoded message.
type raw []byte

// codec is link.Codec, and sends raw messages as they are.
type codec struct{ link.Codec }

var _ encoding.CodecV2 = codec{}

// Marshal encodes a *wire.Packet or a raw.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(raw); ok {
		return mem.BufferSlice{mem.SliceBuffer(r)}, nil
	}
	return c.Codec.Marshal(v)
}

// describe is a packet in a line.
func describe(k wire.Packet) string {
	var b strings.Builder
	b.WriteString(k.Type.String())
	for _, f := range []struct {
		name string
		v    int64
	}{
		{"dial", int64(k.DialID)}, {"conn", int64(k.ConnectionID)}, {"bytes", int64(k.Payload.Len())},
		{"window", k.Window}, {"count", k.Count},
	} {
		if f.v != 0 {
			fmt.Fprintf(&b, " %s=%d", f.name, f.v)
		}
	}
	if k.Reason != wire.ReasonNone {
		fmt.Fprintf(&b, " reason=%s", k.Reason)
	}
	if k.Error != "" {
		fmt.Fprintf(&b, " error=%q", k.Error)
	}
	if k.Address != "" {
		fmt.Fprintf(&b, " address=%q", k.Address)
	}
	if k.Mismatched {
		b.WriteString(" mismatched")
	}
	return b.String()
}
