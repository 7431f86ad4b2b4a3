package agentlink

import (
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/culvert-proxy/culvert/internal/transport"
	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

func TestPacketsReachTheirTunnel(t *testing.T) {
	for _, hello := range []link.AgentHello{oldAgent("a"), newAgent("a", "i", "0")} {
		bubble(t, all(), func(t *testing.T, w *world) {
			a := w.readyOrOld(hello)
			tun, c := w.open(a, 1)
			a.SendData(1, []byte("down"))
			if err := tun.Write(wire.PayloadBytes([]byte("up"))); err != nil {
				t.Fatal(err)
			}
			a.ExpectData(1, []byte("up"))
			tun.Close()
			a.ExpectOn(wire.CloseRequest, 1)
			a.Send(wire.Packet{Type: wire.CloseResponse, ConnectionID: 1})
			<-tun.Done()
			if end := c.over(); c.got() != "down" || end == nil || end.Abnormal() {
				t.Errorf("client got %q, end %v", c.got(), end)
			}
		})
	}
}

// readyOrOld connects hello, and says READY if it knows the word.
func (w *world) readyOrOld(hello link.AgentHello) *tunneltest.AgentPeer {
	w.t.Helper()
	if hello.Extensions == 0 {
		a := w.connect("agent", hello)
		synctest.Wait()
		return a
	}
	return w.readyAgent("agent", hello)
}

// The reader of an old agent's link may wait for one tunnel; a link that is lost
// meanwhile is over all the same.
func TestLostWhileTheReaderWaits(t *testing.T) {
	bubble(t, all(), func(t *testing.T, w *world) {
		a := w.connect("agent", oldAgent("a"))
		_, stuck := w.open(a, 1)
		_, other := w.open(a, 2)
		stuck.block = make(chan struct{})
		a.SendData(1, make([]byte, 1<<20)) // more than may wait
		pass(time.Second)
		w.net.Cut("agent", "server")
		w.wantBackends()
		if end := other.over(); end == nil || end.Reason != wire.ReasonLinkLost {
			t.Errorf("end %v", end)
		}
		close(stuck.block)
		if w.links.Links() != 0 {
			t.Error("the link is still there")
		}
	})
}

// Whatever an agent sends, its other tunnels go on.
func TestNonsenseIsPassedOver(t *testing.T) {
	nonsense := []wire.Packet{
		{Type: wire.DialRequest, DialID: 5, Address: "h:1", Protocol: "tcp"},
		{Type: wire.CloseRequest, ConnectionID: 1},
		{Type: 99},
		{Type: wire.DialResponse, DialID: 12345, Error: "for nobody"},
		{Type: wire.CloseResponse, ConnectionID: 77},
		{Type: wire.DialClose, DialID: 12345},
		{Type: wire.Data, ConnectionID: 0, Payload: wire.PayloadBytes([]byte("x"))},
		{Type: wire.CloseResponse},
		{Type: wire.HalfClose, ConnectionID: 77},
		{Type: wire.Credit, ConnectionID: 77, Window: 1},
		{Type: wire.Ready},
		{Type: wire.ServerCount, Count: 5},
		{Type: wire.Data, ConnectionID: 1}, // empty
	}
	raw := [][]byte{
		{},                       // DIAL_REQ with no payload
		{0x08, 0x04},             // DATA with no payload
		{0x08, 0x01},             // DIAL_RSP
		{0x08, 0x03},             // CLOSE_RSP
		{0x08, 0x05},             // DIAL_CLS
		{0x08, 0x04, 0x32, 0x00}, // DATA with a closeResponse
		{0x08, 0x63},             // type 99
	}
	for _, hello := range []link.AgentHello{oldAgent("a"), newAgent("a", "i", "0")} {
		bubble(t, all(), func(t *testing.T, w *world) {
			a := w.readyOrOld(hello)
			_, c := w.open(a, 1)
			a.Send(nonsense...)
			for _, message := range raw {
				a.SendRaw(message)
			}
			a.SendData(1, []byte("still here"))
			if c.got() != "still here" || c.over() != nil {
				t.Errorf("client got %q, end %v", c.got(), c.over())
			}
			a.Skip(wire.CloseRequest) // for IDs that nobody knows
			a.ExpectNothing()
			if w.obs.got[99] != 2 || w.obs.got[wire.CloseRequest] != 1 {
				t.Errorf("counted %v", w.obs.got)
			}
		})
	}
}

func TestUnknownConnectionIsClosed(t *testing.T) {
	bubble(t, all(), func(t *testing.T, w *world) {
		a := w.connect("agent", oldAgent("a"))
		a.SendData(9, []byte("x"))
		a.ExpectOn(wire.CloseRequest, 9)
	})
}

func TestMalformedMessageEndsTheLink(t *testing.T) {
	bubble(t, all(), func(t *testing.T, w *world) {
		a := w.connect("agent", oldAgent("a"))
		_, c := w.open(a, 1)
		a.SendRaw([]byte{0xff})
		if err := a.ExpectEnd(); status.Code(err) != codes.Internal {
			t.Errorf("ended with %v", err)
		}
		w.wantBackends()
		if end := c.over(); end == nil || end.Reason != wire.ReasonLinkLost {
			t.Errorf("end %v", end)
		}
	})
}

func TestLargeMessages(t *testing.T) {
	bubble(t, all(), func(t *testing.T, w *world) {
		a := w.connect("agent", oldAgent("a"))
		_, c := w.open(a, 1)
		big := make([]byte, 5<<20)
		a.SendRaw(append([]byte{0x08, 0x63, 0x7a, 0x80, 0x80, 0xc0, 0x02}, big...)) // an unknown type with an unknown field 15
		a.SendData(1, []byte("still here"))
		if c.got() != "still here" {
			t.Fatalf("client got %q", c.got())
		}
		a.SendRaw(make([]byte, maxMessage+1))
		if err := a.ExpectEnd(); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestEndsOfALink(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(w *world, a *tunneltest.AgentPeer)
		want error
	}{
		{"cancelled", func(_ *world, a *tunneltest.AgentPeer) { a.Close() }, nil},
		{"connection cut", func(w *world, _ *tunneltest.AgentPeer) { w.net.Cut("agent", "server") }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, all(), func(t *testing.T, w *world) {
				a := w.readyAgent("agent", newAgent("a", "i", "0"))
				_, c := w.open(a, 1)
				pending, waiting := w.dial("h:2")
				a.ExpectDial("h:2")
				tt.end(w, a)
				w.wantBackends()
				if end := c.over(); end == nil || end.Reason != wire.ReasonLinkLost {
					t.Errorf("tunnel's end: %v", end)
				}
				<-pending.Done()
				if waiting.failed == nil {
					t.Error("the pending dial was not answered")
				}
			})
		})
	}
}

// A frozen agent's TCP connection looks fine, and its stream is full. The link is
// given up after 25 s of silence, and is gone within a second.
func TestFrozenAgentIsGivenUp(t *testing.T) {
	bubble(t, all(), func(t *testing.T, w *world) {
		a := w.readyAgent("agent", newAgent("a", "i", "0"))
		tun, c := w.open(a, 1)
		w.net.ShapeBoth("agent", "server", tunneltest.Shape{Stall: true})
		stuck := make(chan error, 1)
		go func() {
			for {
				if err := tun.Write(wire.PayloadBytes(make([]byte, 32<<10))); err != nil {
					stuck <- err
					return
				}
			}
		}()
		pass(24 * time.Second)
		w.wantBackends("a/i/0")
		pass(2 * time.Second)
		w.wantBackends()
		<-stuck
		if end := c.over(); end == nil || end.Reason != wire.ReasonLinkLost || w.links.Links() != 0 {
			t.Errorf("end %v, %d links", end, w.links.Links())
		}
		if w.net.Open() != 1 { // the agent's side, which does not know
			t.Errorf("%d connections are open", w.net.Open())
		}
		w.net.ShapeBoth("agent", "server", tunneltest.Shape{})
	})
}

// An old agent that is frozen is found by HTTP/2 pings: 15 s idle, 10 s for the answer.
func TestFrozenOldAgentIsGivenUp(t *testing.T) {
	bubble(t, all(), func(t *testing.T, w *world) {
		w.connect("agent", oldAgent("a"))
		w.wantBackends("a//")
		w.net.ShapeBoth("agent", "server", tunneltest.Shape{Stall: true})
		pass(24 * time.Second)
		w.wantBackends("a//")
		pass(2 * time.Second)
		w.wantBackends()
		w.net.ShapeBoth("agent", "server", tunneltest.Shape{})
	})
}

func TestIdleLinksStayForHours(t *testing.T) {
	bubble(t, all(), func(t *testing.T, w *world) {
		old := w.connect("old", oldAgent("a"))
		w.wantBackends("a//")
		fresh := w.readyAgent("new", newAgent("b", "i", "0"))
		pass(6 * time.Hour)
		w.wantBackends("a//", "b/i/0")
		old.ExpectNothing()
		fresh.ExpectNothing()
		if fresh.Pings() == 0 || old.Pings() != 0 {
			t.Errorf("pings: new %d, old %d", fresh.Pings(), old.Pings())
		}
	})
}

func TestStatuses(t *testing.T) {
	bubble(t, all(), func(t *testing.T, w *world) {
		hello := newAgent("b", "i", "2")
		hello.Identifiers = "host=x"
		a := w.readyAgent("agent", hello)
		w.open(a, 1)
		pass(time.Second)
		w.connect("old", oldAgent("a"))
		pass(time.Second)
		all := w.links.Statuses()
		if len(all) != 2 || all[0].AgentID != "a" {
			t.Fatalf("%+v", all)
		}
		s := all[1]
		if s.AgentID != "b" || s.Instance != "i" || s.Slot != "2" || !s.Backend || s.Tunnels != 1 || s.Load == 0 ||
			s.Extensions != wire.AllExtensions || s.Address == "" || time.Since(s.Since) != 2*time.Second ||
			!slices.Equal(s.Identifiers, []wire.Identifier{{Key: "host", Value: "x"}}) {
			t.Errorf("%+v", s)
		}
	})
}

// An orderly end of the agent's stream is answered with an orderly end.
func TestOrderlyEnd(t *testing.T) {
	bubble(t, all(), func(t *testing.T, w *world) {
		conn, err := grpc.NewClient("passthrough:///server", grpc.WithContextDialer(w.net.Dialer("agent")),
			grpc.WithTransportCredentials(transport.Cleartext()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(link.Codec{})))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx := metadata.NewOutgoingContext(t.Context(), oldAgent("a").Metadata())
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, tunneltest.ConnectMethod)
		if err != nil {
			t.Fatal(err)
		}
		w.wantBackends("a//")
		stream.CloseSend()
		if err := stream.RecvMsg(&wire.Packet{}); !errors.Is(err, io.EOF) {
			t.Errorf("ended with %v", err)
		}
		w.wantBackends()
		if len(w.obs.receiveErr) != 1 || !errors.Is(w.obs.receiveErr[0], io.EOF) {
			t.Errorf("receive errors %v", w.obs.receiveErr)
		}
	})
}
