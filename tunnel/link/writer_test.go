package link

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// script writes packets as short words: "DATA 1:3" is 3 bytes on tunnel 1.
func script(sent []sentPacket) string {
	var words []string
	for _, s := range sent {
		switch s.Type {
		case wire.Data:
			words = append(words, fmt.Sprintf("DATA %d:%d", s.ConnectionID, len(s.data)))
		case wire.Credit:
			words = append(words, fmt.Sprintf("CREDIT %d:%d", s.ConnectionID, s.Window))
		default:
			words = append(words, fmt.Sprintf("%s %d", s.Type, s.ConnectionID))
		}
	}
	return strings.Join(words, ", ")
}

// gated starts a link whose writer is inside SendMsg, stuck, with a DRAIN.
func gated(t *testing.T, cfg Config) (*Link, *fakeStream) {
	t.Helper()
	f := newFakeStream()
	f.gate = make(chan struct{})
	l := startOn(t, f, cfg)
	l.Send(wire.Packet{Type: wire.Drain})
	synctest.Wait()
	return l, f
}

// open lets n packets through.
func (f *fakeStream) open(n int) {
	for range n {
		f.gate <- struct{}{}
	}
	synctest.Wait()
}

func bytesOf(n int) wire.Payload { return wire.PayloadBytes(make([]byte, n)) }

func TestControlGoesBeforeData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, f := gated(t, Config{Extensions: noPing})
		s := l.NewSender(1, 1<<20)
		_ = s.Write(bytesOf(10))
		l.Send(wire.Packet{Type: wire.DialResponse, ConnectionID: 2})
		l.Grant(2, 5)
		l.Grant(2, 6)
		l.Send(wire.Packet{Type: wire.CloseRequest, ConnectionID: 3})
		f.open(5)
		want := "DRAIN 0, DIAL_RSP 2, CREDIT 2:11, CLOSE_REQ 3, DATA 1:10"
		if got := script(f.take(t)); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	})
}

func TestDataRespectsCreditAndSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, f := start(t, Config{Extensions: noPing})
		s := l.NewSender(1, 40<<10)
		_ = s.Write(bytesOf(100 << 10))
		synctest.Wait()
		if got, want := script(f.take(t)), "DATA 1:32768, DATA 1:8192"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if q, p := s.Queued(), s.Progress(); q != 60<<10 || p != 40<<10 {
			t.Errorf("queued %d, progress %d", q, p)
		}
		for _, n := range []int64{1, 100 << 10} {
			if err := s.AddCredit(n); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if got, want := script(f.take(t)), "DATA 1:1, DATA 1:32768, DATA 1:28671"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestOldPeersHaveEndlessCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, f := start(t, Config{})
		s := l.NewSender(1, 0)
		for range 3 {
			_ = s.Write(bytesOf(32 << 10))
		}
		if err := s.AddCredit(-1); err != nil {
			t.Errorf("AddCredit without the extension: %v", err)
		}
		l.Grant(1, 100) // means nothing to an old peer
		l.Send(wire.Packet{Type: wire.HalfClose, ConnectionID: 1})
		s.Finish(wire.Packet{Type: wire.CloseRequest, ConnectionID: 1, Reason: wire.ReasonReset})
		synctest.Wait()
		sent := f.take(t)
		if got, want := script(sent), "DATA 1:32768, DATA 1:32768, DATA 1:32768, CLOSE_REQ 1"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if r := sent[3].Reason; r != wire.ReasonNone {
			t.Errorf("an old peer was sent reason %v", r)
		}
	})
}

func TestOldPeersAreSpokenToPlainly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, f := start(t, Config{})
		l.Send(wire.Packet{Type: wire.DialResponse, ConnectionID: 1, Window: 5, Reason: wire.ReasonOther})
		l.Send(wire.Packet{Type: wire.DialRequest, Window: 5, CanHalfClose: true})
		l.NewSender(1, 0).Abort(&wire.Packet{Type: wire.CloseRequest, ConnectionID: 1, Reason: wire.ReasonStuck})
		for _, kind := range []wire.PacketType{wire.Credit, wire.HalfClose, wire.Ping, wire.Pong, wire.Ready, wire.ServerCount} {
			l.Send(wire.Packet{Type: kind, ConnectionID: 1})
		}
		l.Send(wire.Packet{Type: wire.Drain})
		synctest.Wait()
		sent := f.take(t)
		if got, want := script(sent), "DIAL_RSP 1, DIAL_REQ 0, CLOSE_REQ 1, DRAIN 0"; got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
		for _, p := range sent {
			if p.Window != 0 || p.CanHalfClose || p.Reason != wire.ReasonNone {
				t.Errorf("an old peer was sent %+v", p.Packet)
			}
		}
	})
}

func TestSmallWritesAreJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, f := gated(t, Config{Extensions: noPing})
		s := l.NewSender(1, 1<<20)
		var want []byte
		for i := range 2000 {
			b := []byte(fmt.Sprint("chunk ", i))
			want = append(want, b...)
			_ = s.Write(wire.CopyPayload(b))
		}
		f.open(2)
		if sent := f.take(t); len(sent) != 2 || !bytes.Equal(sent[1].data, want) {
			t.Errorf("%d bytes became %s", len(want), script(sent))
		}
	})
}

func TestQueueIsBounded(t *testing.T) {
	for _, tt := range []struct{ size, count int }{{16 << 10, 8}, {1, 128 << 10}, {1 << 20, 1}} {
		synctest.Test(t, func(t *testing.T) {
			l, _ := gated(t, Config{Extensions: noPing})
			s := l.NewSender(1, 1<<30)
			wrote := 0
			go func() {
				for s.Write(bytesOf(tt.size)) == nil {
					wrote++
				}
			}()
			synctest.Wait()
			if wrote != tt.count {
				t.Errorf("%d writes of %d bytes were queued, want %d", wrote, tt.size, tt.count)
			}
			s.Abort(nil)
			synctest.Wait()
		})
	}
}

func TestFinishGoesBehindData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, f := start(t, Config{Extensions: noPing})
		s := l.NewSender(1, 0)
		_ = s.Write(bytesOf(10))
		s.Finish(wire.Packet{Type: wire.HalfClose, ConnectionID: 1})
		if err := s.Write(bytesOf(1)); !errors.Is(err, ErrFinished) {
			t.Errorf("Write after Finish: %v", err)
		}
		s.Finish(wire.Packet{Type: wire.HalfClose, ConnectionID: 1})
		s.Finish(wire.Packet{Type: wire.CloseRequest, ConnectionID: 1})
		s.Finish(wire.Packet{Type: wire.CloseRequest, ConnectionID: 1})
		synctest.Wait()
		if got := script(f.take(t)); got != "" {
			t.Errorf("without credit it sent %s", got)
		}
		_ = s.AddCredit(100)
		synctest.Wait()
		s.Abort(&wire.Packet{Type: wire.CloseRequest, ConnectionID: 1})
		synctest.Wait()
		if got, want := script(f.take(t)), "DATA 1:10, HALF_CLOSE 1, CLOSE_REQ 1"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestAbortDropsDataAndSendsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, f := start(t, Config{Extensions: noPing})
		s := l.NewSender(1, 0)
		_ = s.Write(bytesOf(100 << 10))
		blocked := make(chan error)
		go func() { blocked <- s.Write(bytesOf(100 << 10)) }()
		synctest.Wait()
		s.Finish(wire.Packet{Type: wire.CloseRequest, ConnectionID: 1})
		if err := <-blocked; !errors.Is(err, ErrFinished) {
			t.Errorf("the blocked Write got %v", err)
		}
		for range 3 {
			s.Abort(&wire.Packet{Type: wire.CloseRequest, ConnectionID: 1, Reason: wire.ReasonAborted})
		}
		s.Finish(wire.Packet{Type: wire.CloseRequest, ConnectionID: 1})
		_ = s.AddCredit(1 << 20)
		if err := s.Write(bytesOf(1)); !errors.Is(err, ErrAborted) {
			t.Errorf("Write after Abort: %v", err)
		}
		synctest.Wait()
		sent := f.take(t)
		if script(sent) != "CLOSE_REQ 1" || sent[0].Reason != wire.ReasonAborted {
			t.Errorf("got %s", script(sent))
		}
		if s.Queued() != 0 {
			t.Errorf("%d bytes queued after Abort", s.Queued())
		}
	})
}

func TestAddCreditRefusesNonsense(t *testing.T) {
	l, _ := start(t, Config{Extensions: noPing})
	s := l.NewSender(1, 100)
	for _, n := range []int64{0, -1, maxCredit, 1<<63 - 1} {
		if err := s.AddCredit(n); !errors.Is(err, ErrCredit) {
			t.Errorf("AddCredit(%d) = %v", n, err)
		}
	}
	if err := s.AddCredit(maxCredit - 100); err != nil {
		t.Errorf("AddCredit up to the bound: %v", err)
	}
}

func TestStreamErrorEndsEverything(t *testing.T) {
	for _, inline := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeStream()
			f.sendErr = status.Error(codes.PermissionDenied, "no")
			ext := noPing
			if !inline {
				ext &^= wire.ExtCredit
			}
			l := startOn(t, f, Config{Extensions: ext})
			synctest.Wait()
			s := l.NewSender(1, 1<<20)
			_ = s.Write(bytesOf(10))
			synctest.Wait()
			for _, err := range []error{l.Err(), s.Write(bytesOf(1)), l.Run()} {
				if status.Code(err) != codes.PermissionDenied {
					t.Errorf("got %v", err)
				}
			}
			<-l.Done()
		})
	}
}

// TestSendEOFYieldsToStatus: a client's stream says only EOF to its writer.
func TestSendEOFYieldsToStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		f.sendErr = io.EOF
		l := startOn(t, f, Config{})
		l.Send(wire.Packet{Type: wire.Drain})
		synctest.Wait()
		if !errors.Is(l.Err(), ErrStreamEnded) {
			t.Errorf("before Recv: %v", l.Err())
		}
		f.end(status.Error(codes.Unknown, "why"))
		var p wire.Packet
		for _, err := range []error{l.Recv(&p), l.Err()} {
			if status.Convert(err).Message() != "why" {
				t.Errorf("got %v", err)
			}
		}
	})
}

func TestOutboxOverflowKillsTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kills := 0
		l, _ := gated(t, Config{Extensions: noPing, MaxOutbox: 100, Kill: func(err error) {
			if !errors.Is(err, ErrOutboxFull) {
				t.Errorf("killed with %v", err)
			}
			kills++
		}})
		for i := range 200 {
			l.Send(wire.Packet{Type: wire.CloseRequest, ConnectionID: wire.ConnectionID(i)})
		}
		l.Kill(errors.New("again"))
		if !errors.Is(l.Err(), ErrOutboxFull) || kills != 1 {
			t.Errorf("ended with %v, %d kills", l.Err(), kills)
		}
	})
}

func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, f := gated(t, Config{Extensions: noPing})
		_ = l.NewSender(1, 1<<20).Write(bytesOf(10))
		_ = l.NewSender(2, 0).Write(bytesOf(10)) // waits for credit
		flushed := make(chan error, 1)
		go func() { flushed <- l.Flush(t.Context()) }()
		f.open(1)
		if len(flushed) != 0 {
			t.Fatal("Flush returned with data queued")
		}
		f.open(1)
		if err := <-flushed; err != nil {
			t.Error(err)
		}
		l.Close(nil)
		if err := l.Flush(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("Flush of a closed link: %v", err)
		}
	})
}
