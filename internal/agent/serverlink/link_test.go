package serverlink

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// TestTunnel goes once through everything: dial, data both ways, half-close,
// close, with a new and with an old server.
func TestTunnel(t *testing.T) {
	for _, hello := range []link.ServerHello{newServer(), oldServer()} {
		inBubble(t, nil, func(t *testing.T, b *bench) {
			lis := b.net.Listen("endpoint:80")
			r := b.run(hello)
			id, ep := b.open(r, lis)
			r.peer.SendData(id, []byte("question"))
			buf := make([]byte, 8)
			if _, err := io.ReadFull(ep, buf); err != nil || string(buf) != "question" {
				t.Fatalf("endpoint got %q, %v", buf, err)
			}
			if _, err := ep.Write([]byte("answer")); err != nil {
				t.Fatal(err)
			}
			r.peer.ExpectData(id, []byte("answer"))
			_ = ep.(*tunneltest.Conn).CloseWrite()
			if hello.Extensions != 0 {
				r.peer.ExpectOn(wire.HalfClose, id)
				r.peer.SendData(id, []byte("more"))
				r.peer.Send(wire.Packet{Type: wire.HalfClose, ConnectionID: id})
				if rest, err := io.ReadAll(ep); err != nil || string(rest) != "more" {
					t.Fatalf("endpoint got %q, %v", rest, err)
				}
			}
			if rsp := r.peer.ExpectOn(wire.CloseResponse, id); rsp.Error != "" || rsp.Reason != wire.ReasonNone {
				t.Errorf("closed with %+v", rsp)
			}
			_ = ep.Close()
			_ = lis.Close()
			r.peer.End(nil)
			if err := <-r.ended; !errors.Is(err, io.EOF) {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

// TestForeignPackets are ignored and the link goes on.
func TestForeignPackets(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		r := b.run(newServer())
		r.peer.SendRaw(nil)                // DIAL_REQ without its payload
		r.peer.SendRaw([]byte{0x08, 0x63}) // type 99
		r.peer.SendRaw([]byte{0x08, 0x04}) // DATA without its payload
		r.peer.SendRaw([]byte{0x08, 0x06}) // DRAIN without its payload
		r.peer.SendRaw([]byte{0x08, 0x45}) // SERVER_COUNT without its payload
		r.peer.Send(
			wire.Packet{Type: wire.DialResponse, DialID: 1, ConnectionID: 1},
			wire.Packet{Type: wire.CloseResponse, ConnectionID: 1},
			wire.Packet{Type: wire.Ready},
			wire.Packet{Type: wire.Credit, ConnectionID: 9, Window: 1},
			wire.Packet{Type: wire.DialClose, DialID: 9},
		)
		synctest.Wait()
		r.peer.ExpectNothing()
		if len(r.events.counts) != 0 {
			t.Errorf("counts %v", r.events.counts)
		}
		r.peer.End(nil)
		<-r.ended
	})
}

// TestServerSays: counts and drains reach the fleet; a drain only where it was
// negotiated.
func TestServerSays(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		r := b.run(newServer())
		r.peer.Send(
			wire.Packet{Type: wire.ServerCount, Count: 3},
			wire.Packet{Type: wire.ServerCount, Count: -7},
			wire.Packet{Type: wire.ServerCount, Count: 1 << 60},
			wire.Packet{Type: wire.Drain},
			wire.Packet{Type: wire.Drain},
		)
		synctest.Wait()
		if got := r.events.counts; len(got) != 3 || got[0] != 3 || got[1] != 0 || got[2] != maxCount {
			t.Errorf("counts %v", got)
		}
		if r.events.draining != 1 {
			t.Errorf("told of %d drains", r.events.draining)
		}
		r.Drain()
		r.peer.Expect(wire.Drain)
		r.peer.End(nil)
		<-r.ended
	})
	inBubble(t, nil, func(t *testing.T, b *bench) {
		r := b.run(oldServer())
		r.peer.Send(wire.Packet{Type: wire.Drain}, wire.Packet{Type: wire.ServerCount, Count: 3})
		synctest.Wait()
		if r.events.draining != 0 || len(r.events.counts) != 0 {
			t.Errorf("events %+v", r.events)
		}
		r.Drain() // but every server may be told
		r.peer.Expect(wire.Drain)
		r.peer.End(nil)
		<-r.ended
	})
}

// TestGoAway stops new use; the link and its tunnels go on until the stream ends.
func TestGoAway(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		lis := b.net.Listen("endpoint:80")
		r := b.run(newServer())
		id, ep := b.open(r, lis)
		b.server.GoAway()
		<-time.After(time.Hour)
		if r.events.draining != 1 {
			t.Errorf("told of %d drains", r.events.draining)
		}
		r.peer.SendData(id, []byte("still here"))
		buf := make([]byte, 10)
		if _, err := io.ReadFull(ep, buf); err != nil {
			t.Fatal(err)
		}
		r.peer.End(nil)
		<-r.ended
		_, _ = ep.Close(), lis.Close()
	})
}

// TestLost: whatever ends the link, its connections are reset within a second.
func TestLost(t *testing.T) {
	ends := map[string]struct {
		act    func(b *bench, r *running)
		within time.Duration
	}{
		"server ends":  {func(_ *bench, r *running) { r.peer.End(status.Error(codes.Unavailable, "bye")) }, time.Second},
		"server dies":  {func(b *bench, _ *running) { b.server.Stop() }, time.Second},
		"cut":          {func(b *bench, _ *running) { b.net.Cut("server:1", "agent") }, time.Second},
		"server hangs": {func(b *bench, _ *running) { b.net.ShapeBoth("server:1", "", tunneltest.Shape{Stall: true}) }, 26 * time.Second},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, b *bench) {
				lis := b.net.Listen("endpoint:80")
				r := b.run(newServer())
				_, ep := b.open(r, lis)
				began := time.Now()
				end.act(b, r)
				err := <-r.ended
				if err == nil {
					t.Error("ended without an error")
				}
				if took := time.Since(began); took > end.within {
					t.Errorf("ended after %v: %v", took, err)
				}
				if _, err := ep.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
					t.Errorf("endpoint saw %v", err)
				}
				b.net.Cut("", "")
				_, _ = ep.Close(), lis.Close()
			})
		})
	}
}

// TestLostWhileReaderWaits: behind an old server the reader may wait for one
// connection; the loss of the link ends that.
func TestLostWhileReaderWaits(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		lis := b.net.Listen("endpoint:80")
		r := b.run(oldServer())
		id, ep := b.open(r, lis)
		go func() {
			for range 20 { // the endpoint reads nothing
				if r.peer.Context().Err() == nil {
					r.peer.SendData(id, make([]byte, 32<<10))
				}
			}
		}()
		synctest.Wait()
		began := time.Now()
		r.attempt.kill()
		<-r.ended
		if took := time.Since(began); took > time.Second {
			t.Errorf("ended after %v", took)
		}
		_, _ = ep.Close(), lis.Close()
	})
}

// TestClose: what was queued arrives, then the stream ends in order.
func TestClose(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		r := b.run(newServer())
		for i := range wire.DialID(100) {
			r.peer.Send(wire.Packet{Type: wire.DialRequest, DialID: i, Protocol: "tcp", Address: "nowhere:1"})
		}
		synctest.Wait()
		r.Drain()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() {
			for range 100 {
				r.peer.Expect(wire.DialResponse)
			}
			r.peer.Expect(wire.Drain)
			if err := r.peer.ExpectEnd(); !errors.Is(err, io.EOF) {
				t.Errorf("server saw %v", err)
			}
			r.peer.End(nil)
		}()
		began := time.Now()
		r.Close(ctx)
		<-r.ended
		if took := time.Since(began); took != 0 {
			t.Errorf("took %v", took)
		}
	})
	inBubble(t, nil, func(t *testing.T, b *bench) { // a server that does not end it
		r := b.run(newServer())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r.Close(ctx)
		<-r.ended
	})
}
