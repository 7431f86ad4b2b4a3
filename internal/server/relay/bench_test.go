package relay

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// benchSide is a Frontend, an Outlet and a Sender that cost nothing.
type benchSide struct {
	NopObserver
	peer    *Peer
	ext     wire.Extensions
	dialled chan wire.DialID
	granted atomic.Int64
	written atomic.Int64
}

func (b *benchSide) Established(wire.ConnectionID) error { return nil }
func (b *benchSide) Failed(*wire.DialError)              {}
func (b *benchSide) CloseWrite() error                   { return nil }
func (b *benchSide) Close(End)                           {}
func (b *benchSide) Interrupt()                          {}
func (b *benchSide) Extensions() wire.Extensions         { return b.ext }
func (b *benchSide) MinRTT() time.Duration               { return time.Millisecond }
func (b *benchSide) Kill(error)                          {}

func (b *benchSide) Grant(_ wire.ConnectionID, n int64) { b.granted.Add(n) }

func (b *benchSide) Send(pk wire.Packet) {
	if pk.Type == wire.DialRequest {
		b.dialled <- pk.DialID
	}
}

func (b *benchSide) NewSender(wire.ConnectionID, int64) Sender { return (*benchSender)(b) }

func (b *benchSide) Pick(string, func(*Peer) bool) (*Peer, bool) { return b.peer, true }

func (b *benchSide) Write(p wire.Payload) error {
	b.written.Add(int64(p.Len()))
	p.Free()
	return nil
}

type benchSender benchSide

func (b *benchSender) Write(p wire.Payload) error { return (*benchSide)(b).Write(p) }
func (b *benchSender) AddCredit(int64) error      { return nil }
func (b *benchSender) Finish(wire.Packet)         {}
func (b *benchSender) Abort(*wire.Packet)         {}
func (b *benchSender) Queued() int64              { return 0 }
func (b *benchSender) Progress() int64            { return b.written.Load() }

func benchTunnel(b *testing.B, ext wire.Extensions) (*benchSide, *Relay, *Tunnel) {
	side := &benchSide{ext: ext, dialled: make(chan wire.DialID, 1)}
	r := New(Config{}, side, side)
	side.peer = r.Attach(side, PeerInfo{})
	t := r.Open(b.Context(), Request{DialID: 1, Address: "endpoint:80"}, side)
	side.peer.DialResponse(wire.Packet{Type: wire.DialResponse, DialID: <-side.dialled, ConnectionID: 1})
	if err := t.WaitEstablished(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = r.Shutdown(context.Background(), End{})
	})
	return side, r, t
}

// BenchmarkDown is a DATA packet from the link's reader to the frontend.
func BenchmarkDown(b *testing.B) {
	for name, ext := range map[string]wire.Extensions{"credit": newAgent, "old": 0} {
		b.Run(name, func(b *testing.B) {
			side, _, _ := benchTunnel(b, ext)
			data := make([]byte, 32<<10)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			sent := int64(0)
			for b.Loop() {
				for ext != 0 && sent+int64(len(data)) > 256<<10+side.granted.Load() {
					runtime.Gosched() // as an agent waits for credit
				}
				side.peer.Data(wire.Packet{Type: wire.Data, ConnectionID: 1, Payload: wire.PayloadBytes(data)})
				sent += int64(len(data))
			}
		})
	}
}

// BenchmarkUp is a client's data from the adapter to the link.
func BenchmarkUp(b *testing.B) {
	_, _, t := benchTunnel(b, newAgent)
	data := make([]byte, 32<<10)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if err := t.Write(wire.PayloadBytes(data)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkShortTunnel is a dial and an orderly close.
func BenchmarkShortTunnel(b *testing.B) {
	side, r, t := benchTunnel(b, newAgent)
	t.Abort(wire.ReasonAborted, "")
	<-t.Done()
	b.ReportAllocs()
	id := wire.ConnectionID(1)
	for b.Loop() {
		t := r.Open(b.Context(), Request{DialID: 1, Address: "endpoint:80"}, side)
		id++
		side.peer.DialResponse(wire.Packet{Type: wire.DialResponse, DialID: <-side.dialled, ConnectionID: id})
		if err := t.WaitEstablished(); err != nil {
			b.Fatal(err)
		}
		t.Close()
		side.peer.CloseResponse(wire.Packet{Type: wire.CloseResponse, ConnectionID: id})
		<-t.Done()
	}
}

// BenchmarkIdleTunnel reports what an established tunnel costs in memory.
func BenchmarkIdleTunnel(b *testing.B) {
	side, r, _ := benchTunnel(b, newAgent)
	memory := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	const n = 5000
	before := memory()
	for i := range wire.ConnectionID(n) {
		t := r.Open(b.Context(), Request{DialID: wire.DialID(i + 2), Address: "endpoint:80"}, side)
		side.peer.DialResponse(wire.Packet{Type: wire.DialResponse, DialID: <-side.dialled, ConnectionID: i + 2})
		if err := t.WaitEstablished(); err != nil {
			b.Fatal(err)
		}
	}
	each := float64(memory()-before) / n
	for b.Loop() {
		runtime.Gosched()
	}
	b.ReportMetric(each, "B/tunnel")
}
