package client

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"google.golang.org/grpc"

	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// echoServer answers every dial, and all data, over a real Unix socket.
func echoServer(b *testing.B) string {
	b.Helper()
	dir, err := os.MkdirTemp("", "cv")
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "f"))
	if err != nil {
		b.Fatal(err)
	}
	handler := func(_ any, stream grpc.ServerStream) error {
		stream.SendHeader(link.ExtensionsMetadata(link.ClientExtensions))
		for {
			var p wire.Packet
			if err := stream.RecvMsg(&p); err != nil {
				return err
			}
			switch p.Type {
			case wire.DialRequest:
				stream.SendMsg(&wire.Packet{Type: wire.DialResponse, DialID: p.DialID, ConnectionID: connID})
			case wire.Data:
				stream.SendMsg(&p)
				p.Payload.Free()
			case wire.CloseRequest:
				stream.SendMsg(&wire.Packet{Type: wire.CloseResponse, ConnectionID: connID})
				return nil
			}
		}
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(link.Codec{}), grpc.UnknownServiceHandler(handler),
		grpc.InitialWindowSize(256<<10), grpc.InitialConnWindowSize(1<<20), grpc.ReadBufferSize(4<<10))
	go server.Serve(l)
	b.Cleanup(func() {
		server.Stop()
		os.RemoveAll(dir)
	})
	return "unix://" + l.Addr().String()
}

func benchConn(b *testing.B) (*Reusable, net.Conn) {
	b.Helper()
	tunnel, err := NewReusable(echoServer(b), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { tunnel.Close() })
	c, err := tunnel.DialContext(b.Context(), "tcp", endpoint)
	if err != nil {
		b.Fatal(err)
	}
	return tunnel, c
}

func BenchmarkRequestResponse(b *testing.B) {
	_, c := benchConn(b)
	buf := make([]byte, 100)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBulkEcho(b *testing.B) {
	_, c := benchConn(b)
	buf := make([]byte, 64<<10)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	n := 0
	done := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				c.(*Conn).CloseWrite()
				return
			default:
				c.Write(buf)
			}
		}
	}()
	in := make([]byte, 64<<10)
	for b.Loop() {
		if _, err := io.ReadFull(c, in); err != nil {
			b.Fatal(err)
		}
		n++
	}
	close(stop)
	c.Close()
	<-done
}

func BenchmarkDialEchoClose(b *testing.B) {
	tunnel, _ := benchConn(b)
	buf := make([]byte, 100)
	b.ReportAllocs()
	for b.Loop() {
		c, err := tunnel.DialContext(b.Context(), "tcp", endpoint)
		if err != nil {
			b.Fatal(err)
		}
		c.Write(buf)
		if _, err := io.ReadFull(c, buf); err != nil {
			b.Fatal(err)
		}
		if err := c.(*Conn).CloseContext(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkIdle reports the memory of an idle tunnel, both ends of it together.
func BenchmarkIdle(b *testing.B) {
	target := echoServer(b)
	const n = 200
	memory := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	measure := func(b *testing.B, dial func() (Tunnel, net.Conn)) {
		first, _ := dial()
		defer first.Close()
		var tunnels []Tunnel
		before, goroutines := memory(), runtime.NumGoroutine()
		for range n {
			t, _ := dial()
			tunnels = append(tunnels, t)
		}
		b.ReportMetric(float64(memory()-before)/n/1024, "KiB/tunnel")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/n, "goroutines/tunnel")
		b.ReportMetric(0, "ns/op")
		for _, t := range tunnels {
			t.Close()
		}
	}
	echo := func(t Tunnel) net.Conn {
		c, err := t.DialContext(b.Context(), "tcp", endpoint)
		if err != nil {
			b.Fatal(err)
		}
		c.Write(make([]byte, 100))
		if _, err := io.ReadFull(c, make([]byte, 100)); err != nil {
			b.Fatal(err)
		}
		return c
	}
	b.Run("single-use", func(b *testing.B) {
		measure(b, func() (Tunnel, net.Conn) {
			t, err := NewSingleUse(b.Context(), target, Options{})
			if err != nil {
				b.Fatal(err)
			}
			return t, echo(t)
		})
	})
	b.Run("reusable", func(b *testing.B) {
		t, err := NewReusable(target, Options{})
		if err != nil {
			b.Fatal(err)
		}
		measure(b, func() (Tunnel, net.Conn) { return t, echo(t) })
	})
}
