package frontconnect

import (
	"net"
	"testing"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// unixPair is a connected pair of Unix sockets.
func unixPair(b *testing.B) (here, there net.Conn) {
	b.Helper()
	l, dial := listen(b, "unix")
	defer l.Close()
	here, err := dial()
	if err != nil {
		b.Fatal(err)
	}
	there, err = l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { here.Close(); there.Close() })
	return here, there
}

// BenchmarkInput reads what a client sends as fast as it can.
func BenchmarkInput(b *testing.B) {
	here, there := unixPair(b)
	sock := newSocket(there)
	in := newSocketInput(sock.rc, &chunkPool{size: chunkSize})
	go func() {
		buf := make([]byte, 256<<10)
		for {
			if _, err := here.Write(buf); err != nil {
				return
			}
		}
	}()
	const size = 1 << 20
	b.SetBytes(size)
	for b.Loop() {
		for n := 0; n < size; {
			p, err := in.next()
			if err != nil {
				b.Fatal(err)
			}
			n += p.Len()
			p.Free()
		}
	}
}

// BenchmarkOutput writes payloads of three buffers, as they come from a link.
func BenchmarkOutput(b *testing.B) {
	here, there := unixPair(b)
	go func() {
		buf := make([]byte, 256<<10)
		for {
			if _, err := there.Read(buf); err != nil {
				return
			}
		}
	}()
	sock := newSocket(here)
	g := &gatherer{}
	part := func(n int) wire.Payload { return wire.PayloadBytes(make([]byte, n)) }
	bufs := append(append(part(16000).Buffers(), part(16384).Buffers()...), part(384).Buffers()...)
	p := wire.PayloadOf(bufs)
	b.SetBytes(int64(p.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if err := g.write(&sock, p); err != nil {
			b.Fatal(err)
		}
	}
}
