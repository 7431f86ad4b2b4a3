package link_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// tapServer runs a server whose streams are handed to the test, which closes the
// second channel to end one, and a client's stream to it.
func tapServer(t *testing.T, grace time.Duration) (*tunneltest.Network, grpc.ServerStream, grpc.ClientStream, chan<- struct{}) {
	t.Helper()
	n := tunneltest.NewNetwork(0)
	streams, over := make(chan grpc.ServerStream, 1), make(chan struct{})
	server := grpc.NewServer(grpc.ForceServerCodecV2(link.Codec{}), grpc.InTapHandle(link.Tap(grace, nil)), grpc.WaitForHandlers(true),
		grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
			streams <- s
			<-over
			return nil
		}))
	go server.Serve(n.Listen("server"))
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("passthrough:///server", grpc.WithContextDialer(n.Dial), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(link.Codec{})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/a/b")
	if err != nil {
		t.Fatal(err)
	}
	return n, <-streams, c, over
}

// Whatever arrived before the connection broke can be read after it.
func TestTapLetsTheRestBeRead(t *testing.T) {
	const grace, packets = 100 * time.Millisecond, 200
	synctest.Test(t, func(t *testing.T) {
		n, s, c, over := tapServer(t, grace)
		defer close(over)
		for i := range packets {
			if err := c.SendMsg(&wire.Packet{Type: wire.Data, ConnectionID: wire.ConnectionID(i)}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		lost, _, ok := link.Tapped(s.Context())
		if !ok || lost.Err() != nil {
			t.Fatal("the stream is not tapped, or lost already")
		}
		cut := time.Now()
		n.Cut("client", "server")
		<-lost.Done()
		if s.Context().Err() != nil || time.Since(cut) != 0 {
			t.Errorf("the stream's context ended with the connection, or %v late", time.Since(cut))
		}
		<-time.After(grace / 2) // a reader that is busy
		var p wire.Packet
		for i := range packets {
			if err := s.RecvMsg(&p); err != nil || p.ConnectionID != wire.ConnectionID(i) {
				t.Fatalf("packet %d: %v, %v", i, p, err)
			}
		}
		if err := s.RecvMsg(&p); status.Code(err) != codes.Canceled || time.Since(cut) != grace {
			t.Errorf("%v after %v", err, time.Since(cut))
		}
	})
}

func TestTapCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s, c, over := tapServer(t, time.Hour)
		defer close(over)
		received := make(chan error)
		go func() { received <- s.RecvMsg(&wire.Packet{}) }()
		synctest.Wait()
		_, cancel, _ := link.Tapped(s.Context())
		cancel()
		if err := <-received; status.Code(err) != codes.Canceled {
			t.Errorf("RecvMsg: %v", err)
		}
		if err := c.RecvMsg(&wire.Packet{}); status.Code(err) != codes.Canceled {
			t.Errorf("the client sees %v", err)
		}
	})
}

// An orderly end is not delayed.
func TestTapOrderlyEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s, c, over := tapServer(t, time.Hour)
		began := time.Now()
		c.CloseSend()
		if err := s.RecvMsg(&wire.Packet{}); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		_, cancel, _ := link.Tapped(s.Context())
		cancel()
		close(over)
		if err := c.RecvMsg(&wire.Packet{}); !errors.Is(err, io.EOF) || time.Since(began) != 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestTapsCompose(t *testing.T) {
	type key struct{}
	inner := func(ctx context.Context, _ *tap.Info) (context.Context, error) {
		return context.WithValue(ctx, key{}, "mine"), nil
	}
	ctx, err := link.Tap(0, inner)(t.Context(), nil)
	_, cancel, ok := link.Tapped(ctx)
	if err != nil || !ok || ctx.Value(key{}) != "mine" {
		t.Fatalf("%v, %v, %v", err, ok, ctx.Value(key{}))
	}
	cancel()
	<-ctx.Done()
	no := errors.New("no")
	if _, err := link.Tap(0, func(ctx context.Context, _ *tap.Info) (context.Context, error) { return ctx, no })(t.Context(), nil); !errors.Is(err, no) {
		t.Error(err)
	}
	if _, _, ok := link.Tapped(t.Context()); ok {
		t.Error("found a tap where none is")
	}
}
