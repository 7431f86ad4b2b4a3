package endpoint

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// TestDialFailure: the answer carries dial ID, text and reason, and the
// connection ID is used up.
func TestDialFailure(t *testing.T) {
	inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
		b.table.DialRequest(wire.Packet{DialID: 7, Protocol: "tcp", Address: "nowhere"})
		synctest.Wait()
		b.listener.SetMode(tunneltest.Refusing)
		b.table.DialRequest(wire.Packet{DialID: 8, Protocol: "tcp", Address: "endpoint"})
		synctest.Wait()
		b.table.DialRequest(wire.Packet{DialID: 9, Protocol: "udp", Address: "endpoint"})
		b.table.DialRequest(wire.Packet{DialID: 10, Protocol: "unix", Address: "/run/x.sock"})
		b.table.DialRequest(wire.Packet{DialID: 11, Protocol: "tcp", Address: strings.Repeat("x", 1<<20)})
		want := []struct {
			id     wire.DialID
			reason wire.Reason
			text   string
		}{
			{7, wire.ReasonUnknownHost, "no such host"},
			{8, wire.ReasonRefused, "connection refused"},
			{9, wire.ReasonProtocol, "unsupported protocol"},
			{10, wire.ReasonProtocol, "unsupported protocol"},
			{11, wire.ReasonBadAddress, "too long"},
		}
		synctest.Wait()
		got := b.link.got(wire.DialResponse)
		if len(got) != len(want) {
			t.Fatalf("%d answers: %+v", len(got), got)
		}
		for i, w := range want {
			g := got[i]
			if g.DialID != w.id || g.ConnectionID != 0 || g.Reason != w.reason || !strings.Contains(g.Error, w.text) {
				t.Errorf("dial %d answered with %+v, want %v and %q", w.id, g, w.reason, w.text)
			}
		}
		b.listener.SetMode(tunneltest.Accepting)
		b.dials = 20
		if id, ep := b.open(); id != 6 {
			t.Errorf("connection ID %d after five failed dials, want 6", id)
		} else {
			_ = ep.Close()
		}
	})
}

// TestDialTimeout: an endpoint that does not answer costs five seconds.
func TestDialTimeout(t *testing.T) {
	inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
		b.net.Shape("", "endpoint", tunneltest.Shape{Stall: true})
		began := time.Now()
		b.table.DialRequest(wire.Packet{DialID: 1, Protocol: "tcp", Address: "endpoint"})
		for len(b.link.got(wire.DialResponse)) == 0 {
			wait(100 * time.Millisecond)
		}
		if took := time.Since(began); took < 5*time.Second || took > 5200*time.Millisecond {
			t.Errorf("answered after %v", took)
		}
		if rsp := b.link.got(wire.DialResponse)[0]; rsp.Reason != wire.ReasonDialTimeout || rsp.Error == "" {
			t.Errorf("answered with %+v", rsp)
		}
	})
}

// TestDialCanceled: DIAL_CLS ends every dial with its ID, silently, and only those.
func TestDialCanceled(t *testing.T) {
	inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
		b.net.Shape("", "endpoint", tunneltest.Shape{Stall: true})
		req := wire.Packet{DialID: 1, Protocol: "tcp", Address: "endpoint"}
		b.table.DialRequest(req)
		b.table.DialRequest(req)
		req.DialID = 2
		b.table.DialRequest(req)
		synctest.Wait()
		if n := b.table.Pending(); n != 3 {
			t.Fatalf("%d dials pending", n)
		}
		b.table.DialClosed(wire.Packet{DialID: 1})
		b.table.DialClosed(wire.Packet{DialID: 1})
		b.table.DialClosed(wire.Packet{DialID: 99})
		synctest.Wait()
		if n := b.table.Pending(); n != 1 {
			t.Fatalf("%d dials pending after DIAL_CLS", n)
		}
		b.net.Shape("", "endpoint", tunneltest.Shape{})
		ep, err := b.listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		got := b.link.got(wire.DialResponse)
		if len(got) != 1 || got[0].DialID != 2 || got[0].ConnectionID != 3 {
			t.Errorf("answers %+v, want one for dial 2 with connection 3", got)
		}
		if b.seen.failed != 2 || b.seen.failures[0].Reason != wire.ReasonCanceled {
			t.Errorf("observer saw %d failures", b.seen.failed)
		}
		_ = ep.Close()
	})
}

// TestEqualDialIDs: both are served.
func TestEqualDialIDs(t *testing.T) {
	inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
		req := wire.Packet{DialID: 5, Protocol: "tcp", Address: "endpoint"}
		b.table.DialRequest(req)
		b.table.DialRequest(req)
		for range 2 {
			ep, err := b.listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer ep.Close()
		}
		synctest.Wait()
		got := b.link.got(wire.DialResponse)
		if len(got) != 2 || got[0].ConnectionID+got[1].ConnectionID != 3 {
			t.Errorf("answers %+v", got)
		}
	})
}

// slowDialer succeeds although its dial was cancelled meanwhile.
type slowDialer struct {
	memDialer
	release chan struct{}
}

func (d slowDialer) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.memDialer.Dial(ctx, network, address)
	<-d.release
	return c, err
}

// TestDialSucceedsTooLate: a connection that nobody wants any more is closed,
// and nobody hears of it.
func TestDialSucceedsTooLate(t *testing.T) {
	unwanted := map[string]func(b *bench){
		"cancelled": func(b *bench) { b.table.DialClosed(wire.Packet{DialID: 1}) },
		"link lost": func(b *bench) { b.table.Lost(nil) },
	}
	for name, act := range unwanted {
		inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
			d := slowDialer{memDialer{b.net}, make(chan struct{})}
			b.room.dialer = d
			b.table.DialRequest(wire.Packet{DialID: 1, Protocol: "tcp", Address: "endpoint"})
			ep, err := b.listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			act(b)
			close(d.release)
			synctest.Wait()
			if got := b.link.got(wire.DialResponse); len(got) != 0 {
				t.Errorf("%s: answered with %+v", name, got)
			}
			b.checkEmpty()
			if _, err := ep.Read(make([]byte, 1)); err == nil {
				t.Errorf("%s: the endpoint's connection lives", name)
			}
			_ = ep.Close()
		})
	}
}

// TestUnknownConnections get the answers of COMPAT 1.7, or none.
func TestUnknownConnections(t *testing.T) {
	inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
		id, ep := b.open()
		b.send(77, []byte("lost"))
		b.closeReq(78, wire.ReasonNone)
		b.closeReq(79, wire.ReasonAborted)
		b.send(0, []byte("nobody's"))
		b.closeReq(0, wire.ReasonNone)
		b.halfClose(80)
		b.table.Credit(wire.Packet{ConnectionID: 81, Window: 1})
		b.table.DialClosed(wire.Packet{DialID: 82})
		got := b.link.got(wire.CloseResponse)
		want := []struct {
			id   wire.ConnectionID
			text string
		}{{77, "unrecognized connectID"}, {78, "Unknown connectID"}, {79, "Unknown connectID"}}
		if len(got) != len(want) {
			t.Fatalf("answers %+v", got)
		}
		for i, w := range want {
			if got[i].ConnectionID != w.id || got[i].Error != w.text {
				t.Errorf("answer %+v, want %+v", got[i], w)
			}
		}
		b.wantOpen(id)
		_ = ep.Close()
	})
}

// TestMismatchedPackets are ignored, whatever else is in them.
func TestMismatchedPackets(t *testing.T) {
	inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
		id, ep := b.open()
		b.table.DialRequest(wire.Packet{Mismatched: true})
		b.table.DialClosed(wire.Packet{Mismatched: true})
		b.table.Data(wire.Packet{Mismatched: true, ConnectionID: id})
		b.table.CloseRequest(wire.Packet{Mismatched: true, ConnectionID: id})
		b.table.HalfClosed(wire.Packet{Mismatched: true, ConnectionID: id})
		b.table.Credit(wire.Packet{Mismatched: true, ConnectionID: id})
		b.wantOpen(id)
		if n := len(b.link.got(wire.DialResponse)); n != 1 {
			t.Errorf("%d dial answers", n)
		}
		if next, ep2 := b.open(); next != id+1 {
			t.Errorf("connection ID %d after %d", next, id)
		} else {
			_ = ep2.Close()
		}
		_ = ep.Close()
	})
}

// TestLimits: dials beyond a limit are refused with a reason.
func TestLimits(t *testing.T) {
	inBubble(t, allExtensions, Config{MaxPendingDials: 2, MaxConnections: 3}, func(t *testing.T, b *bench) {
		var eps []net.Conn
		for range 2 {
			_, ep := b.open()
			eps = append(eps, ep)
		}
		b.net.Shape("", "endpoint", tunneltest.Shape{Stall: true})
		for i := range wire.DialID(3) {
			b.table.DialRequest(wire.Packet{DialID: 100 + i, Protocol: "tcp", Address: "endpoint"})
		}
		synctest.Wait()
		got := b.link.got(wire.DialResponse)[2:]
		if len(got) != 2 || got[0].Reason != wire.ReasonLimit || got[0].DialID != 101 || got[1].Reason != wire.ReasonLimit {
			t.Errorf("answers %+v", got)
		}
		b.room.Refuse()
		b.table.DialRequest(wire.Packet{DialID: 200, Protocol: "tcp", Address: "endpoint"})
		if got := b.link.got(wire.DialResponse)[4]; got.Reason != wire.ReasonShutdown || got.Error == "" {
			t.Errorf("answer %+v", got)
		}
		for _, ep := range eps {
			_ = ep.Close()
		}
	})
}

// TestWaitIdle: dials and connections keep the agent busy, lingering ones too.
func TestWaitIdle(t *testing.T) {
	inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
		if err := b.room.WaitIdle(t.Context()); err != nil {
			t.Fatal(err)
		}
		id, ep := b.open()
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := b.room.WaitIdle(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("idle with an open connection: %v", err)
		}
		idle := make(chan time.Time)
		go func() {
			_ = b.room.WaitIdle(t.Context())
			idle <- time.Now()
		}()
		wait(time.Minute)
		began := time.Now()
		b.closeReq(id, wire.ReasonNone)
		if took := (<-idle).Sub(began); took != time.Second {
			t.Errorf("idle after %v, want the second of lingering", took)
		}
		_ = ep.Close()
	})
	inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
		id, ep := b.open()
		b.room.Refuse()
		began := time.Now()
		b.closeReq(id, wire.ReasonNone)
		if err := b.room.WaitIdle(t.Context()); err != nil || time.Since(began) != quietLeaving {
			t.Errorf("an agent that leaves is idle after %v: %v", time.Since(began), err)
		}
		_ = ep.Close()
	})
}

// TestInfo: the status page sees what is going on.
func TestInfo(t *testing.T) {
	inBubble(t, allExtensions, Config{}, func(t *testing.T, b *bench) {
		id, ep := b.openWith(100, true)
		b.send(id, pattern(200<<10))
		_, _ = ep.Write(pattern(1000))
		synctest.Wait()
		got := b.room.Connections()
		if len(got) != 1 {
			t.Fatalf("%d connections", len(got))
		}
		i := got[0]
		if i.ConnectionID != id || i.Address != "endpoint" || i.State != "open" || i.Up != 64<<10 ||
			i.UpQueued != 136<<10 || i.Down != 1000 || i.DownQueued != 900 || i.Window < 256<<10 {
			t.Errorf("info %+v", i)
		}
		_ = ep.Close()
	})
}
