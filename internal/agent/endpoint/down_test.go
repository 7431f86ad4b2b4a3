package endpoint

import (
	"bytes"
	"errors"
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// TestEndpointClosesFull: without half-close the endpoint's FIN ends the tunnel,
// behind every byte, even those for which there is no credit yet.
func TestEndpointClosesFull(t *testing.T) {
	inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
		id, ep := b.openWith(1000, false)
		want := pattern(50 << 10)
		if _, err := ep.Write(want); err != nil {
			t.Fatal(err)
		}
		_ = ep.Close()
		b.wantOpen(id)
		wait(time.Minute)
		b.wantOpen(id)
		if n := b.table.Connections(); n != 1 {
			t.Fatalf("%d connections in the table: credit could not arrive", n)
		}
		b.table.Credit(wire.Packet{Type: wire.Credit, ConnectionID: id, Window: 1 << 20})
		b.wantClosed(id, wire.ReasonNone)
		if got := b.link.sender(id).received(); !bytes.Equal(got, want) {
			t.Fatalf("server got %d of %d bytes", len(got), len(want))
		}
		if n := len(b.link.got(wire.HalfClose)); n != 0 {
			t.Errorf("%d HALF_CLOSE sent", n)
		}
		b.checkEmpty()
	})
}

// TestEndpointClosedStillTakes: what the server had sent before it could know of
// the endpoint's FIN is written out.
func TestEndpointClosedStillTakes(t *testing.T) {
	inBubble(t, 0, Config{}, func(t *testing.T, b *bench) {
		id, ep := b.openWith(0, false)
		want := pattern(200 << 10)
		b.send(id, want)
		if err := ep.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		b.wantClosed(id, wire.ReasonNone)
		if got := readAll(t, ep); !bytes.Equal(got, want) {
			t.Fatalf("endpoint got %d of %d bytes", len(got), len(want))
		}
		_ = ep.Close()
		b.checkEmpty()
	})
}

// TestClientClosesWhileFlushing: the client is gone, so the endpoint's last
// bytes need no credit any more.
func TestClientClosesWhileFlushing(t *testing.T) {
	inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
		id, ep := b.openWith(10, false)
		if _, err := ep.Write(pattern(1000)); err != nil {
			t.Fatal(err)
		}
		_ = ep.Close()
		b.wantOpen(id)
		b.closeReq(id, wire.ReasonNone)
		b.wantClosed(id, wire.ReasonNone)
		b.checkEmpty()
	})
}

// TestHalfCloses: each side ends its direction, in either order, and the other
// direction goes on.
func TestHalfCloses(t *testing.T) {
	check := func(t *testing.T, endpointFirst bool) {
		inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
			id, ep := b.open()
			up, down := pattern(100<<10), pattern(30<<10)
			server := func() {
				b.send(id, up)
				b.halfClose(id)
			}
			endpoint := func() {
				if _, err := ep.Write(down); err != nil {
					t.Fatal(err)
				}
				if err := ep.CloseWrite(); err != nil {
					t.Fatal(err)
				}
			}
			first, second := server, endpoint
			if endpointFirst {
				first, second = endpoint, server
			}
			first()
			b.wantOpen(id)
			wait(time.Minute)
			second()
			got := readAll(t, ep)
			if !bytes.Equal(got, up) {
				t.Errorf("endpoint got %d of %d bytes", len(got), len(up))
			}
			b.wantClosed(id, wire.ReasonNone)
			if got := b.link.sender(id).received(); !bytes.Equal(got, down) {
				t.Errorf("server got %d of %d bytes", len(got), len(down))
			}
			if n := len(b.link.got(wire.HalfClose)); endpointFirst && n != 1 {
				t.Errorf("%d HALF_CLOSE sent, want 1", n)
			}
			_ = ep.Close()
			b.checkEmpty()
		})
	}
	t.Run("server first", func(t *testing.T) { check(t, false) })
	t.Run("endpoint first", func(t *testing.T) { check(t, true) })
}

// TestHalfCloseThenClose: a client that half-closed and then closes.
func TestHalfCloseThenClose(t *testing.T) {
	inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
		id, ep := b.open()
		b.send(id, []byte("all"))
		b.halfClose(id)
		if got := readAll(t, ep); string(got) != "all" {
			t.Fatalf("endpoint got %q", got)
		}
		b.closeReq(id, wire.ReasonNone)
		b.wantClosed(id, wire.ReasonNone)
		_ = ep.Close()
		b.checkEmpty()
	})
	inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
		id, ep := b.open()
		_ = ep.CloseWrite()
		synctest.Wait()
		b.send(id, []byte("all"))
		b.closeReq(id, wire.ReasonNone)
		if got := readAll(t, ep); string(got) != "all" {
			t.Fatalf("endpoint got %q", got)
		}
		b.wantClosed(id, wire.ReasonNone)
		b.checkEmpty()
		_ = ep.Close()
	})
}

// TestEndpointResets: what had arrived is delivered, then the end is abnormal.
func TestEndpointResets(t *testing.T) {
	inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
		id, ep := b.openWith(1000, true)
		if _, err := ep.Write(pattern(3000)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the agent has read it
		ep.Reset()
		b.wantOpen(id)
		b.table.Credit(wire.Packet{Type: wire.Credit, ConnectionID: id, Window: 1 << 20})
		b.wantClosed(id, wire.ReasonReset)
		if got := b.link.sender(id).received(); !bytes.Equal(got, pattern(3000)) {
			t.Errorf("server got %d bytes", len(got))
		}
		if rsp := b.link.got(wire.CloseResponse); rsp[0].Error == "" {
			t.Error("a reason without a text")
		}
		b.checkEmpty()
	})
	inBubble(t, 0, Config{}, func(t *testing.T, b *bench) {
		id, ep := b.open()
		ep.Reset()
		b.wantClosed(id, wire.ReasonReset) // which the link strips
		if rsp := b.link.got(wire.CloseResponse); rsp[0].Error != "" {
			t.Errorf("an old server is told %q, want nothing", rsp[0].Error)
		}
	})
}

// TestWriterOfDeadEndpointIsNotStuck: a client that reads only when it has
// written everything gets credit to write, and then the abnormal end.
func TestWriterOfDeadEndpointIsNotStuck(t *testing.T) {
	inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
		id, ep := b.openWith(10, true)
		if _, err := ep.Write(pattern(3000)); err != nil { // more than there is credit for
			t.Fatal(err)
		}
		synctest.Wait()
		credit := b.link.got(wire.DialResponse)[0].Window
		b.send(id, pattern(int(credit))) // all of it, and the endpoint takes 64 KiB
		ep.Reset()
		synctest.Wait()
		if got := b.link.granted[id]; got < credit {
			t.Fatalf("%d of %d bytes of credit came back", got, credit)
		}
		granted := b.link.granted[id]
		b.send(id, pattern(1000))
		if got := b.link.granted[id] - granted; got != 1000 {
			t.Errorf("%d bytes granted for 1000 dropped ones", got)
		}
		b.table.Credit(wire.Packet{Type: wire.Credit, ConnectionID: id, Window: 1 << 20})
		b.wantClosed(id, wire.ReasonReset)
	})
}

// TestResetWhileClosing: the endpoint resets before it has everything.
func TestResetWhileClosing(t *testing.T) {
	inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
		id, ep := b.open()
		b.send(id, pattern(200<<10))
		b.closeReq(id, wire.ReasonNone)
		synctest.Wait()
		ep.Reset()
		b.wantClosed(id, wire.ReasonReset)
		b.checkEmpty()
	})
}

// TestHalfClosedAndSilent: a half-closed tunnel in which nothing moves ends; one
// in which a byte moves now and then does not.
func TestHalfClosedAndSilent(t *testing.T) {
	inBubble(t, allExtensions, Config{HalfCloseTimeout: time.Minute}, func(t *testing.T, b *bench) {
		id, ep := b.open()
		b.halfClose(id)
		for range 5 {
			wait(50 * time.Second)
			if _, err := ep.Write([]byte{1}); err != nil {
				t.Fatal(err)
			}
			b.wantOpen(id)
		}
		wait(2*time.Minute + time.Second)
		b.wantClosed(id, wire.ReasonHalfCloseTimeout)
		if _, err := io.Copy(io.Discard, ep); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("endpoint saw %v, want a reset", err)
		}
		_ = ep.Close()
		b.checkEmpty()
	})
	inBubble(t, allExtensions, Config{HalfCloseTimeout: time.Minute}, func(t *testing.T, b *bench) {
		id, ep := b.open() // not half-closed: it may be silent for as long as it likes
		wait(time.Hour)
		b.wantOpen(id)
		_ = ep.Close()
	})
}

// TestClientThatDoesNotRead: the endpoint is held back, and nothing is lost.
func TestClientThatDoesNotRead(t *testing.T) {
	inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
		id, ep := b.openWith(1000, true)
		want := pattern(1 << 20)
		sent := make(chan error, 1)
		go func() {
			_, err := ep.Write(want)
			_ = ep.Close()
			sent <- err
		}()
		wait(time.Hour)
		select {
		case err := <-sent:
			t.Fatalf("the endpoint could write everything: %v", err)
		default:
		}
		b.table.Credit(wire.Packet{Type: wire.Credit, ConnectionID: id, Window: 1 << 30})
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		b.halfClose(id)
		b.wantClosed(id, wire.ReasonNone)
		if got := b.link.sender(id).received(); !bytes.Equal(got, want) {
			t.Errorf("server got %d of %d bytes", len(got), len(want))
		}
	})
}
