package link_test

import (
	"crypto/rand"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/mem"

	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// pool counts the buffers that are out, and spoils those that come back.
type pool struct{ out, seen atomic.Int64 }

func (c *pool) Get(n int) *[]byte {
	c.out.Add(1)
	c.seen.Add(1)
	b := make([]byte, n)
	return &b
}

func (c *pool) Put(b *[]byte) {
	c.out.Add(-1)
	clear((*b)[:cap(*b)])
}

// TestBuffersComeBackFromGRPC sends pooled payloads over real gRPC and receives
// them in a counting pool: nothing is lost, spoilt or kept.
func TestBuffersComeBackFromGRPC(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent, received := &pool{}, &pool{}
		got := make(chan []byte, 1)
		handler := func(_ any, stream grpc.ServerStream) error {
			l := link.New(link.Config{Stream: stream, Extensions: wire.AllExtensions &^ wire.ExtPing})
			var all []byte
			for {
				var p wire.Packet
				if err := l.Recv(&p); err != nil {
					got <- all
					return err
				}
				all = append(all, p.Payload.Bytes()...)
				p.Payload.Free()
			}
		}
		n := tunneltest.NewNetwork(0)
		server := grpc.NewServer(grpc.ForceServerCodecV2(link.Codec{}), grpc.UnknownServiceHandler(handler), experimental.BufferPool(received))
		listener := n.Listen("server")
		go func() { _ = server.Serve(listener) }()

		client := tunneltest.Proxy(t, n.Dialer("client"), "server", 0)
		l := link.New(link.Config{Stream: client.Stream(), Extensions: wire.AllExtensions &^ wire.ExtPing})
		writer := make(chan error)
		go func() { writer <- l.Run() }()
		s := l.NewSender(1, 1<<30)
		var want []byte
		for i := range 200 { // some inline, some queued, some split
			b := sent.Get(2000 + i*400)
			_, _ = rand.Read(*b)
			want = append(want, *b...)
			if err := s.Write(wire.PayloadOf(mem.BufferSlice{mem.NewBuffer(b, sent)})); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		client.CloseSend()
		if all := <-got; string(all) != string(want) {
			t.Errorf("%d bytes arrived, %d were sent", len(all), len(want))
		}
		l.Close(io.EOF)
		<-writer
		client.Close()
		server.Stop()
		synctest.Wait()
		if a, b := sent.out.Load(), received.out.Load(); a != 0 || b != 0 || received.seen.Load() == 0 {
			t.Errorf("%d of %d sent buffers and %d of %d received ones are still out", a, sent.seen.Load(), b, received.seen.Load())
		}
	})
}

func TestCodecRefusesOthers(t *testing.T) {
	if _, err := (link.Codec{}).Marshal("x"); err == nil {
		t.Error("encoded a string")
	}
	if err := (link.Codec{}).Unmarshal(nil, new(string)); err == nil {
		t.Error("decoded into a string")
	}
	if name := (link.Codec{}).Name(); name != "proto" {
		t.Errorf("the codec's name is %q", name)
	}
}
