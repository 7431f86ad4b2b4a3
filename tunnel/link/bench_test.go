package link

import (
	"context"
	"testing"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// nullStream takes everything and forgets it.
type nullStream struct{}

func (nullStream) Context() context.Context { return context.Background() }
func (nullStream) SendMsg(any) error        { return nil }
func (nullStream) RecvMsg(any) error        { select {} }

func benchLink(b *testing.B, ext wire.Extensions) *Link {
	l := New(Config{Stream: nullStream{}, Extensions: ext})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = l.Run()
	}()
	b.Cleanup(func() {
		l.Close(nil)
		<-done
	})
	for running := false; !running; {
		l.mu.Lock()
		running = l.running
		l.mu.Unlock()
	}
	return l
}

// BenchmarkWrite is a request-response's share of the link: one small payload
// on an idle link.
func BenchmarkWrite(b *testing.B) {
	data := make([]byte, 1024)
	for name, ext := range map[string]wire.Extensions{
		"inline": wire.AllExtensions,
		"writer": 0, // old peers are never sent to inline
	} {
		b.Run(name, func(b *testing.B) {
			l := benchLink(b, ext)
			s := l.NewSender(1, maxCredit)
			p := wire.PayloadBytes(data)
			b.ReportAllocs()
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if err := s.Write(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkWriteAmongIdle writes on 4 tunnels through the writer while 10,000
// others of the link are idle, half of them with data but no credit: it must
// cost what it costs without them.
func BenchmarkWriteAmongIdle(b *testing.B) {
	for name, idle := range map[string]int{"alone": 0, "idle10000": 10000} {
		b.Run(name, func(b *testing.B) {
			l := benchLink(b, wire.AllExtensions&^wire.ExtPing)
			l.mu.Lock()
			l.running = false // nothing goes inline
			l.mu.Unlock()
			for i := range idle {
				s := l.NewSender(wire.ConnectionID(100+i), 0)
				if i%2 == 0 {
					_ = s.Write(wire.PayloadBytes(make([]byte, 10)))
				}
			}
			var senders [4]*Sender
			for i := range senders {
				senders[i] = l.NewSender(wire.ConnectionID(i+1), maxCredit)
			}
			data := wire.PayloadBytes(make([]byte, 32<<10))
			b.SetBytes(int64(data.Len()))
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if err := senders[i%4].Write(data); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}

// BenchmarkPick is the scheduler alone, with 10,000 tunnels in the ring.
func BenchmarkPick(b *testing.B) {
	l := New(Config{Stream: nullStream{}, Extensions: wire.AllExtensions})
	for i := range 10000 {
		s := l.NewSender(wire.ConnectionID(i), maxCredit)
		s.push(wire.PayloadBytes(make([]byte, 1)))
		s.enlist()
	}
	b.ReportAllocs()
	for b.Loop() {
		s := l.ring.pick()
		s.surplus -= MaxData
	}
}

// BenchmarkGrant is the reader's share of a credit packet.
func BenchmarkGrant(b *testing.B) {
	l := benchLink(b, wire.AllExtensions)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		l.Grant(wire.ConnectionID(i%64), 1000)
		i++
	}
}
