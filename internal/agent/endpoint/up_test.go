package endpoint

import (
	"bytes"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/flow"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// TestCreditFollowsTheEndpoint: the server gets credit back as the endpoint
// reads, and never more than the endpoint has taken.
func TestCreditFollowsTheEndpoint(t *testing.T) {
	inBubble(t, allExtensions, Config{Window: flow.WindowConfig{Initial: 256 << 10, Max: 256 << 10}}, func(t *testing.T, b *bench) {
		id, ep := b.open()
		if w := b.link.got(wire.DialResponse)[0].Window; w != 256<<10 {
			t.Fatalf("initial window %d", w)
		}
		b.send(id, pattern(256<<10))
		synctest.Wait()
		before := b.link.granted[id]
		if before > 64<<10+4096 {
			t.Fatalf("%d bytes granted while the endpoint has read nothing", before)
		}
		if _, err := io.ReadFull(ep, make([]byte, 256<<10)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := b.link.granted[id]; got < 192<<10 || got > 256<<10 {
			t.Errorf("%d of 256 KiB granted after the endpoint has read them", got)
		}
		_ = ep.Close()
	})
}

// TestCreditViolation ends the one tunnel and no other.
func TestCreditViolation(t *testing.T) {
	inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
		other, ep2 := b.open()
		id, ep := b.open()
		credit := b.link.got(wire.DialResponse)[1].Window
		b.send(id, pattern(int(credit)))
		b.wantOpen(id)
		b.send(id, pattern(100<<10)) // the endpoint's host has taken 64 KiB of them
		b.wantClosed(id, wire.ReasonCreditViolation)
		b.wantOpen(other)
		_, _ = ep.Close(), ep2.Close()
	})
	inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
		id, ep := b.open()
		b.table.Credit(wire.Packet{Type: wire.Credit, ConnectionID: id, Window: -1})
		b.wantClosed(id, wire.ReasonCreditViolation)
		_ = ep.Close()
	})
	inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
		id, ep := b.open()
		b.halfClose(id)
		b.send(id, []byte("more"))
		b.wantClosed(id, wire.ReasonProtocolError)
		_ = ep.Close()
	})
}

// TestBudgetShrinksWindows: no more credit is given out than there is memory for.
func TestBudgetShrinksWindows(t *testing.T) {
	inBubble(t, allExtensions, Config{Budget: flow.NewBudget(4 << 20)}, func(t *testing.T, b *bench) {
		var eps []io.Closer
		for range 200 {
			_, ep := b.open()
			eps = append(eps, ep)
		}
		if used := b.room.cfg.Budget.Used(); used > 4<<20+200*16<<10 {
			t.Errorf("%d bytes of credit out of a budget of 4 MiB", used)
		}
		for _, p := range b.link.got(wire.DialResponse) {
			if p.Window < 16<<10 {
				t.Fatalf("a window of %d bytes", p.Window)
			}
		}
		for _, ep := range eps {
			_ = ep.Close()
		}
	})
}

// TestOldServerWaits: behind a server without credit a full queue makes the
// reader wait, but not for long.
func TestOldServerWaits(t *testing.T) {
	chunk := pattern(32 << 10)
	fill := func(b *bench, id wire.ConnectionID) (sent int) {
		c := b.table.find(id)
		for c.queue.Len()+int64(len(chunk)) <= b.room.cfg.OldPeerQueue {
			b.send(id, chunk)
			sent += len(chunk)
			synctest.Wait()
		}
		return sent
	}
	t.Run("10 s at once", func(t *testing.T) {
		inBubble(t, 0, Config{}, func(t *testing.T, b *bench) {
			other, ep2 := b.open()
			id, ep := b.open()
			began := time.Now()
			fill(b, id)
			b.send(id, chunk)
			if took := time.Since(began); took != 10*time.Second {
				t.Errorf("the reader waited for %v, want 10 s", took)
			}
			b.wantClosed(id, wire.ReasonStuck)
			b.wantOpen(other)
			_, _ = ep.Close(), ep2.Close()
		})
	})
	t.Run("10 s in a minute", func(t *testing.T) {
		inBubble(t, 0, Config{}, func(t *testing.T, b *bench) {
			id, ep := b.open()
			fill(b, id)
			done := make(chan struct{})
			go func() { // takes a little every 3 s
				defer close(done)
				for {
					wait(3 * time.Second)
					if _, err := io.ReadFull(ep, make([]byte, 32<<10)); err != nil {
						return
					}
				}
			}()
			began := time.Now()
			for b.table.Connections() > 0 {
				b.send(id, chunk)
			}
			if took := time.Since(began); took > 11*time.Second {
				t.Errorf("the reader waited for %v in a minute", took)
			}
			b.wantClosed(id, wire.ReasonStuck)
			_ = ep.Close()
			<-done
		})
	})
	t.Run("slow but not stuck", func(t *testing.T) {
		inBubble(t, 0, Config{}, func(t *testing.T, b *bench) {
			id, ep := b.open()
			sent := fill(b, id) + 20*len(chunk)
			got := make(chan []byte)
			go func() {
				var all []byte
				buf := make([]byte, 32<<10)
				for {
					n, err := io.ReadFull(ep, buf)
					all = append(all, buf[:n]...)
					if err != nil {
						break
					}
					wait(time.Second)
				}
				got <- all
			}()
			for range 20 {
				wait(8 * time.Second) // it waits 0 to 1 s each time
				b.send(id, chunk)
			}
			b.closeReq(id, wire.ReasonNone)
			if all := <-got; len(all) != sent {
				t.Errorf("endpoint got %d of %d bytes", len(all), sent)
			}
			_ = ep.Close()
			b.wantClosed(id, wire.ReasonNone)
		})
	})
	t.Run("link lost meanwhile", func(t *testing.T) {
		inBubble(t, 0, Config{}, func(t *testing.T, b *bench) {
			id, ep := b.open()
			fill(b, id)
			began := time.Now()
			time.AfterFunc(time.Second, func() { b.link.lose(); b.table.Lost(nil) })
			b.send(id, chunk)
			if took := time.Since(began); took > time.Second {
				t.Errorf("the reader waited for %v, the link was lost after 1 s", took)
			}
			_ = ep.Close()
		})
	})
}

// TestReaderNeverWaitsWithCredit: whatever the endpoint does, nothing that the
// reader calls takes time.
func TestReaderNeverWaitsWithCredit(t *testing.T) {
	inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
		id, ep := b.openWith(10, true)
		_, _ = ep.Write(pattern(1000)) // down is stuck for credit
		began := time.Now()
		for range 256 << 10 { // byte by byte, until up is stuck too
			b.send(id, []byte{1})
		}
		b.halfClose(id)
		b.closeReq(id, wire.ReasonNone)
		b.table.Lost(nil)
		if took := time.Since(began); took != 0 {
			t.Errorf("the reader waited for %v", took)
		}
		_ = ep.Close()
	})
}

// TestZeroLength: data without bytes is nothing.
func TestZeroLength(t *testing.T) {
	inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
		id, ep := b.open()
		b.send(id, nil)
		b.send(id, []byte("x"))
		b.send(id, nil)
		b.closeReq(id, wire.ReasonNone)
		if got := readAll(t, ep); !bytes.Equal(got, []byte("x")) {
			t.Errorf("endpoint got %q", got)
		}
		_ = ep.Close()
	})
}
