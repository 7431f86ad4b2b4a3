package link

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// TestInlineSendsOnTheCallersGoroutine: nobody else has to run for it.
func TestInlineSendsOnTheCallersGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, f := start(t, Config{Extensions: noPing})
		synctest.Wait()
		_ = l.NewSender(1, 100).Write(bytesOf(100))
		if got := script(f.take(t)); got != "DATA 1:100" {
			t.Errorf("when Write returned, %q was sent", got)
		}
	})
}

func TestInlineRespectsCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, f := start(t, Config{Extensions: noPing})
		synctest.Wait()
		s := l.NewSender(1, 15)
		_ = s.Write(bytesOf(10))
		_ = s.Write(bytesOf(10))
		synctest.Wait()
		if got, want := script(f.take(t)), "DATA 1:10, DATA 1:5"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// TestInlineOvertakesNobody: what is in the outbox goes first even if the writer
// has not woken up yet.
func TestInlineOvertakesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, f := start(t, Config{Extensions: noPing})
		for range 200 {
			synctest.Wait()
			s := l.NewSender(1, 100)
			l.Send(wire.Packet{Type: wire.DialResponse, ConnectionID: 1})
			_ = s.Write(bytesOf(10))
			synctest.Wait()
			if got, want := script(f.take(t)), "DIAL_RSP 1, DATA 1:10"; got != want {
				t.Fatalf("got %s, want %s", got, want)
			}
		}
	})
}

// TestRunOutlivesInlineSends: the stream may be ended when Run has returned, so
// nobody may be in SendMsg then.
func TestRunOutlivesInlineSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := &countingPool{}
		f := newFakeStream()
		l := New(Config{Stream: f, Extensions: noPing})
		ran := make(chan error, 1)
		go func() { ran <- l.Run() }()
		synctest.Wait()
		f.gate = make(chan struct{})
		wrote := make(chan error, 1)
		s := l.NewSender(1, 1<<20)
		go func() { wrote <- s.Write(pool.payload(1, 5000)) }()
		synctest.Wait()
		_ = s.Write(pool.payload(2, 5000)) // queued behind it
		l.Close(nil)
		synctest.Wait()
		if len(ran) != 0 {
			t.Error("Run returned while a Write was in SendMsg")
		}
		close(f.gate)
		if err := <-wrote; !errors.Is(err, ErrClosed) {
			t.Errorf("Write: %v", err)
		}
		if err := <-ran; !errors.Is(err, ErrClosed) {
			t.Errorf("Run: %v", err)
		}
		pool.check(t)
	})
}

// TestInlineLargeWriteStaysWhole: a payload of several packets goes out in one
// piece, even if others want the link or the tunnel after its first packet.
func TestInlineLargeWriteStaysWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, f := start(t, Config{Extensions: noPing})
		synctest.Wait()
		s := l.NewSender(1, 1<<20)
		_ = s.Write(bytesOf(100 << 10))
		if got, want := script(f.take(t)), "DATA 1:32768, DATA 1:32768, DATA 1:32768, DATA 1:4096"; got != want {
			t.Errorf("when Write returned, %q was sent", got)
		}

		f.gate = make(chan struct{})
		want := bytes.Repeat([]byte{1}, 70<<10)
		go func() { _ = s.Write(wire.CopyPayload(want)) }()
		synctest.Wait() // in SendMsg with the first 32 KiB
		go func() { _ = s.Write(wire.PayloadBytes([]byte{2, 2})) }()
		l.Send(wire.Packet{Type: wire.Drain})
		synctest.Wait()
		close(f.gate)
		synctest.Wait()
		sent := f.take(t)
		var got []byte
		for _, p := range sent {
			got = append(got, p.data...)
		}
		if !bytes.Equal(got, append(want, 2, 2)) || sent[1].Type != wire.Drain {
			t.Errorf("sent %s, %d bytes in all", script(sent), len(got))
		}
	})
}

// TestCloseReachesThoseBehindAnInlineSend: the sender has nothing queued, only
// data in SendMsg that stays there.
func TestCloseReachesThoseBehindAnInlineSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		l := startOn(t, f, Config{Extensions: noPing, SenderQueue: 1000})
		synctest.Wait()
		f.gate = make(chan struct{})
		s := l.NewSender(1, 1<<20)
		go func() { _ = s.Write(bytesOf(900)) }()
		synctest.Wait()
		behind := make(chan error, 1)
		go func() { behind <- s.Write(bytesOf(900)) }()
		synctest.Wait()
		l.Close(nil)
		synctest.Wait()
		if len(behind) != 1 {
			t.Fatal("a Write still waits")
		}
		if err := <-behind; !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}
