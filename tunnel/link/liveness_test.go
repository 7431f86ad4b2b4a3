package link

import (
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// advance lets a bubble's time pass.
func advance(d time.Duration) { <-time.After(d) }

// reads runs a link's reader until it fails.
func reads(l *Link) {
	go func() {
		var p wire.Packet
		for l.Recv(&p) == nil {
			p.Payload.Free()
		}
	}()
}

func TestSilenceKillsEvenAStuckLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var killed time.Duration
		f := newFakeStream()
		f.gate = make(chan struct{}) // the first ping is stuck in SendMsg
		l := startOn(t, f, Config{Extensions: wire.AllExtensions, Kill: func(err error) {
			killed = time.Since(began)
			f.end(err)
		}})
		reads(l)
		advance(10 * time.Second)
		f.incoming <- wire.Packet{Type: wire.Drain}
		<-l.Done()
		synctest.Wait()
		if killed != 35*time.Second || !errors.Is(l.Err(), ErrSilent) {
			t.Errorf("killed after %v with %v", killed, l.Err())
		}
	})
}

// TestSilenceCountsFromRun: a server may prepare a link long before it runs it.
func TestSilenceCountsFromRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := New(Config{Stream: newFakeStream(), Extensions: wire.AllExtensions})
		advance(20 * time.Second)
		if err := l.Run(); !errors.Is(err, ErrSilent) || time.Since(began) != 45*time.Second {
			t.Errorf("ended after %v with %v", time.Since(began), err)
		}
	})
}

// TestLongRoundTripIsMeasured: longer than the time between two pings.
func TestLongRoundTripIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := pinger(t, 3*time.Second)
		s := l.NewSender(1, 1<<40)
		for range 100 {
			_ = s.Write(bytesOf(10))
			advance(100 * time.Millisecond)
		}
		if got := l.MinRTT(); got != 3*time.Second {
			t.Errorf("MinRTT = %v", got)
		}
	})
}

func TestWithoutPingSilenceIsAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, f := start(t, Config{Extensions: noPing})
		reads(l)
		advance(time.Hour)
		if err, sent := l.Err(), f.take(t); err != nil || len(sent) != 0 {
			t.Errorf("after an hour: %v, sent %s", err, script(sent))
		}
	})
}

// pinger starts a link whose peer answers each ping after rtt.
func pinger(t *testing.T, rtt time.Duration) (*Link, *fakeStream) {
	f := newFakeStream()
	f.onSend = func(p wire.Packet) {
		if p.Type == wire.Ping {
			time.AfterFunc(rtt, func() { f.incoming <- wire.Packet{Type: wire.Pong, Nonce: p.Nonce} })
		}
	}
	l := startOn(t, f, Config{Extensions: wire.AllExtensions})
	reads(l)
	return l, f
}

func TestIdleLinkPingsAndLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, f := pinger(t, 70*time.Millisecond)
		advance(time.Second)
		if got := l.MinRTT(); got != 70*time.Millisecond {
			t.Errorf("MinRTT = %v", got)
		}
		advance(time.Hour - time.Second)
		if n := len(f.take(t)); n < 440 || n > 460 || l.Err() != nil {
			t.Errorf("%d pings in an hour, error %v", n, l.Err())
		}
		if since := time.Since(l.LastReceived()); since > 8*time.Second {
			t.Errorf("last received %v ago", since)
		}
	})
}

func TestActiveLinkPingsEachSecond(t *testing.T) {
	for _, sends := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			l, f := pinger(t, 10*time.Millisecond)
			s := l.NewSender(1, 1<<40)
			for range 600 { // a minute
				if sends {
					_ = s.Write(bytesOf(10))
				} else {
					f.incoming <- wire.Packet{Type: wire.Data, ConnectionID: 1, Payload: bytesOf(10)}
				}
				advance(100 * time.Millisecond)
			}
			pings := 0
			for _, p := range f.take(t) {
				if p.Type == wire.Ping {
					pings++
				}
			}
			if pings < 50 || pings > 61 {
				t.Errorf("sends=%v: %d pings in a minute", sends, pings)
			}
		})
	}
}

func TestMinRTTForgetsAfterTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var delay atomic.Int64
		delay.Store(int64(5 * time.Millisecond))
		f := newFakeStream()
		f.onSend = func(p wire.Packet) {
			time.AfterFunc(time.Duration(delay.Load()), func() { f.incoming <- wire.Packet{Type: wire.Pong, Nonce: p.Nonce} })
		}
		l := startOn(t, f, Config{Extensions: wire.AllExtensions})
		reads(l)
		advance(time.Second)
		delay.Store(int64(50 * time.Millisecond))
		advance(8 * time.Second)
		if got := l.MinRTT(); got != 5*time.Millisecond {
			t.Errorf("MinRTT = %v", got)
		}
		advance(11 * time.Second)
		if got := l.MinRTT(); got != 50*time.Millisecond {
			t.Errorf("MinRTT = %v after 11 s", got)
		}
	})
}

// TestStoppedProcessProvesNothing: after a SIGSTOP of this process its timer is
// late; the peer gets its time from then on.
func TestStoppedProcessProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := start(t, Config{Extensions: wire.AllExtensions})
		synctest.Wait()
		l.mu.Lock()
		l.live.timer.Stop() // what a stopped process does to it
		l.mu.Unlock()
		advance(100 * time.Second)
		l.tick()
		if l.Err() != nil {
			t.Fatalf("killed at once: %v", l.Err())
		}
		resumed := time.Now()
		<-l.Done()
		if d := time.Since(resumed); d != 25*time.Second || !errors.Is(l.Err(), ErrSilent) {
			t.Errorf("ended %v after it went on, with %v", d, l.Err())
		}
	})
}

func TestReaderAnswersPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		f.gate = make(chan struct{})
		l := startOn(t, f, Config{Extensions: wire.AllExtensions})
		reads(l)
		synctest.Wait() // the writer is stuck with its own first ping
		for i := range 50 {
			f.incoming <- wire.Packet{Type: wire.Ping, Nonce: uint64(i)}
		}
		f.incoming <- wire.Packet{Type: wire.Pong, Nonce: 12345} // nobody asked
		synctest.Wait()
		f.open(2)
		sent := f.take(t)
		if script(sent) != "PING 0, PONG 0" || sent[1].Nonce != 49 {
			t.Errorf("sent %s", script(sent))
		}
		if l.MinRTT() != 0 {
			t.Errorf("a pong that answers nothing gave MinRTT %v", l.MinRTT())
		}
	})
}

func TestRecvKeepsWhatWasNotAgreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, f := start(t, Config{})
		for _, p := range []wire.Packet{
			{Type: wire.Ping, Nonce: 1},
			{Type: wire.Credit, ConnectionID: 1, Window: 1},
			{Type: wire.HalfClose, ConnectionID: 1},
			{Type: wire.Ready},
			{Type: wire.ServerCount, Count: 2},
			{Type: wire.DialRequest, Window: 7, CanHalfClose: true, Reason: wire.ReasonReset, Address: "a:1"},
			{Type: 99},
		} {
			f.incoming <- p
		}
		var p wire.Packet
		if err := l.Recv(&p); err != nil || p.Address != "a:1" || p.Window != 0 || p.CanHalfClose || p.Reason != 0 {
			t.Errorf("got %+v, %v", p, err)
		}
		if err := l.Recv(&p); err != nil || p.Type != 99 {
			t.Errorf("got %+v, %v", p, err)
		}
		synctest.Wait()
		if sent := f.take(t); len(sent) != 0 {
			t.Errorf("sent %s", script(sent))
		}
	})
}

// TestWhatArrivedIsDelivered: a failed send says nothing about what the peer had
// sent before.
func TestWhatArrivedIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		f.sendErr = io.EOF
		l := startOn(t, f, Config{})
		for i := range 3 {
			f.incoming <- wire.Packet{Type: wire.Data, ConnectionID: wire.ConnectionID(i)}
		}
		l.Send(wire.Packet{Type: wire.Drain})
		<-l.Done()
		var p wire.Packet
		for i := range 3 {
			if err := l.Recv(&p); err != nil || p.ConnectionID != wire.ConnectionID(i) {
				t.Errorf("got %+v, %v", p, err)
			}
		}
		f.end(status.Error(codes.Unavailable, "gone"))
		if err := l.Recv(&p); status.Code(err) != codes.Unavailable {
			t.Errorf("got %v", err)
		}
	})
}

func TestRecvAfterClose(t *testing.T) {
	pool := &countingPool{}
	l, f := start(t, Config{})
	reason := errors.New("reason")
	l.Close(reason)
	l.Close(errors.New("later"))
	f.incoming <- wire.Packet{Type: wire.Data, Payload: pool.payload(1, 1)}
	var p wire.Packet
	if err := l.Recv(&p); !errors.Is(err, reason) {
		t.Errorf("got %v", err)
	}
	pool.check(t)
}
