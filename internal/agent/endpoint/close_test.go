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

// TestOrderlyCloseDeliversAll: CLOSE_REQ right behind the data loses nothing,
// even if the endpoint is slow, and the endpoint sees a FIN.
func TestOrderlyCloseDeliversAll(t *testing.T) {
	for _, ext := range []wire.Extensions{allExtensions, 0} {
		inBubble(t, ext, Config{}, func(t *testing.T, b *bench) {
			id, ep := b.open()
			want := pattern(200 << 10)
			for rest := want; len(rest) > 0; {
				n := min(len(rest), 10000)
				b.send(id, rest[:n])
				rest = rest[n:]
			}
			b.closeReq(id, wire.ReasonNone)
			b.wantOpen(id)
			var got []byte
			buf := make([]byte, 4096)
			for {
				n, err := ep.Read(buf)
				got = append(got, buf[:n]...)
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				wait(5 * time.Second / 2) // 1.6 KiB/s, never 10 s without progress
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("endpoint got %d of %d bytes", len(got), len(want))
			}
			b.wantClosed(id, wire.ReasonNone)
			_ = ep.Close()
			b.checkEmpty()
		})
	}
}

// wait passes fake time.
func wait(d time.Duration) { <-time.After(d) }

// TestCloseWithEchoingEndpoint: an endpoint that can only go on while somebody
// reads what it sends gets everything.
func TestCloseWithEchoingEndpoint(t *testing.T) {
	inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
		id, ep := b.openWith(1000, true) // hardly any credit: nobody reads
		want := pattern(200 << 10)
		done := make(chan int64)
		go func() {
			n, _ := io.Copy(ep, ep) // a reset at the end is fine, a short count is not
			done <- n
		}()
		b.send(id, want)
		b.closeReq(id, wire.ReasonNone)
		if n := <-done; n != int64(len(want)) {
			t.Fatalf("endpoint took %d of %d bytes", n, len(want))
		}
		_ = ep.Close()
		b.wantClosed(id, wire.ReasonNone)
	})
}

// TestCloseGivesUp: an endpoint that takes nothing more is given up after the
// close timeout; within a second if it was stuck for 5 s already; and not before
// then if it was stuck for less.
func TestCloseGivesUp(t *testing.T) {
	cases := []struct{ stuck, after, within time.Duration }{
		{0, 9 * time.Second, 11 * time.Second},
		{4 * time.Second, 9 * time.Second, 11 * time.Second},
		{5 * time.Second, 0, time.Second},
		{time.Hour, 0, time.Second},
	}
	for _, tc := range cases {
		inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
			id, ep := b.open()
			b.send(id, pattern(200<<10))
			wait(tc.stuck)
			began := time.Now()
			b.closeReq(id, wire.ReasonNone)
			wait(tc.after)
			b.wantOpen(id)
			wait(tc.within - tc.after)
			b.wantClosed(id, wire.ReasonCloseTimeout)
			b.checkEmpty()
			if _, err := io.Copy(io.Discard, ep); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("stuck for %v: endpoint saw %v after %v, want a reset", tc.stuck, err, time.Since(began))
			}
			_ = ep.Close()
		})
	}
}

// TestProgressExtendsClose: stuck for long, then it reads on: nothing is lost.
func TestProgressExtendsClose(t *testing.T) {
	inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
		id, ep := b.open()
		want := pattern(200 << 10)
		b.send(id, want)
		wait(time.Minute)
		b.closeReq(id, wire.ReasonNone)
		synctest.Wait()
		got := make([]byte, 8<<10)
		if _, err := io.ReadFull(ep, got); err != nil {
			t.Fatal(err)
		}
		wait(9 * time.Second)
		got = append(got, readAll(t, ep)...)
		if !bytes.Equal(got, want) {
			t.Fatalf("endpoint got %d of %d bytes", len(got), len(want))
		}
		_ = ep.Close()
		b.wantClosed(id, wire.ReasonNone)
	})
}

// TestLinger: after an orderly close the socket stays until the endpoint has
// closed, or has been quiet for a second, or has talked for the close timeout.
func TestLinger(t *testing.T) {
	t.Run("endpoint closes", func(t *testing.T) {
		inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
			id, ep := b.open()
			b.closeReq(id, wire.ReasonNone)
			b.wantClosed(id, wire.ReasonNone)
			if n := b.room.Open(); n != 1 {
				t.Fatalf("%d connections, want the lingering one", n)
			}
			_ = ep.Close()
			b.checkEmpty()
		})
	})
	t.Run("endpoint is quiet", func(t *testing.T) {
		inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
			id, ep := b.open()
			b.closeReq(id, wire.ReasonNone)
			wait(900 * time.Millisecond)
			if n := b.room.Open(); n != 1 {
				t.Fatalf("%d connections after 0.9 s", n)
			}
			wait(200 * time.Millisecond)
			b.checkEmpty()
			_ = ep.Close()
		})
	})
	t.Run("endpoint talks on", func(t *testing.T) {
		inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
			id, ep := b.open()
			b.closeReq(id, wire.ReasonNone)
			began := time.Now()
			for {
				if _, err := ep.Write([]byte("and another thing")); err != nil {
					break
				}
				wait(300 * time.Millisecond)
			}
			if took := time.Since(began); took < 9*time.Second || took > 11*time.Second {
				t.Errorf("closed after %v, want the close timeout", took)
			}
			b.checkEmpty()
			_ = ep.Close()
		})
	})
	t.Run("not aborted with the link", func(t *testing.T) {
		inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
			id, ep := b.open()
			b.send(id, []byte("last words"))
			b.closeReq(id, wire.ReasonNone)
			synctest.Wait()
			b.table.Lost(nil)
			if got := readAll(t, ep); string(got) != "last words" {
				t.Errorf("endpoint got %q", got)
			}
			_ = ep.Close()
		})
	})
}

// TestAbort: everything is freed at once and the endpoint sees a reset.
func TestAbort(t *testing.T) {
	abort := map[string]func(b *bench, id wire.ConnectionID){
		"CLOSE_REQ":            func(b *bench, id wire.ConnectionID) { b.closeReq(id, wire.ReasonAborted) },
		"CLOSE_REQ of a later": func(b *bench, id wire.ConnectionID) { b.closeReq(id, wire.ReasonOther) },
		"link lost":            func(b *bench, _ wire.ConnectionID) { b.link.lose(); b.table.Lost(nil) },
	}
	for name, act := range abort {
		t.Run(name, func(t *testing.T) {
			inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
				id, ep := b.openWith(100, true)
				b.send(id, pattern(200<<10)) // both directions are stuck
				if _, err := ep.Write(pattern(60 << 10)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				began := time.Now()
				act(b, id)
				if err := b.room.WaitIdle(t.Context()); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took >= time.Second {
					t.Errorf("freed after %v", took)
				}
				b.checkEmpty()
				if _, err := io.Copy(io.Discard, ep); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("endpoint saw %v, want a reset", err)
				}
				_ = ep.Close()
			})
		})
	}
}

// TestLinkLostDeliversWhatArrived: the endpoint gets every byte that the agent
// had, and then a reset.
func TestLinkLostDeliversWhatArrived(t *testing.T) {
	inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
		id, ep := b.open()
		want := pattern(200 << 10)
		b.send(id, want)
		synctest.Wait()
		b.link.lose()
		b.table.Lost(errFakeLink)
		got, err := io.ReadAll(ep)
		if !bytes.Equal(got, want) || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("endpoint got %d of %d bytes, then %v", len(got), len(want), err)
		}
		_ = ep.Close()
		synctest.Wait()
		if end := b.seen.ends[0]; end.Reason != wire.ReasonLinkLost {
			t.Errorf("ended with %+v", end)
		}
	})
}

// TestLinkLostWhileClosing: a close that was in order goes on without the link.
func TestLinkLostWhileClosing(t *testing.T) {
	inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
		id, ep := b.open()
		want := pattern(200 << 10)
		b.send(id, want)
		b.closeReq(id, wire.ReasonNone)
		synctest.Wait()
		b.link.lose()
		b.table.Lost(errFakeLink)
		wait(5 * time.Second)
		if got := readAll(t, ep); !bytes.Equal(got, want) {
			t.Errorf("endpoint got %d of %d bytes", len(got), len(want))
		}
		_ = ep.Close()
	})
}
