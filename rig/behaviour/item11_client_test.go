package behaviour

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/culvert-proxy/culvert/rig/process"
	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// hostileClient is a script's view of the stand, for one kind of client.
type hostileClient struct {
	*testing.T
	s    *stand
	ext  wire.Extensions
	echo *endpoint
	hold *endpoint // never closes
	hole string
}

func (h *hostileClient) open() *tunneltest.ClientPeer { return h.s.peer(h.T, h.ext) }

// reason is r as a client with these extensions sees it.
func (h *hostileClient) reason(r wire.Reason) wire.Reason {
	if h.ext.Has(wire.ExtReason) {
		return r
	}
	return wire.ReasonNone
}

// dialled is a stream with a tunnel to e.
func (h *hostileClient) dialled(e *endpoint) (*tunneltest.ClientPeer, wire.ConnectionID) {
	h.Helper()
	p := h.open()
	return p, h.dial(p, e)
}

func (h *hostileClient) dial(p *tunneltest.ClientPeer, e *endpoint) wire.ConnectionID {
	h.Helper()
	p.Send(wire.Packet{Type: wire.DialRequest, DialID: 42, Protocol: "tcp", Address: e.addr})
	answer := p.Expect(wire.DialResponse)
	if answer.Error != "" || answer.DialID != 42 || answer.ConnectionID <= 0 {
		h.Fatalf("the dial was answered with %+v", answer)
	}
	return answer.ConnectionID
}

// usable checks that a stream can still do its one job, to the end.
func (h *hostileClient) usable(p *tunneltest.ClientPeer) {
	h.Helper()
	id := h.dial(p, h.echo)
	h.echoes(p, id)
	p.Send(wire.Packet{Type: wire.CloseRequest, ConnectionID: id})
	h.closed(p, id, wire.ReasonNone, "")
	h.over(p, codes.OK)
}

func (h *hostileClient) echoes(p *tunneltest.ClientPeer, id wire.ConnectionID) {
	h.Helper()
	p.Send(data(id, word))
	p.ExpectData(id, []byte(word))
}

// closed expects a CLOSE_RSP.
func (h *hostileClient) closed(p *tunneltest.ClientPeer, id wire.ConnectionID, r wire.Reason, text string) {
	h.Helper()
	got := p.ExpectOn(wire.CloseResponse, id)
	if got.Reason != h.reason(r) || !strings.Contains(got.Error, text) || (got.Error == "") != (r == wire.ReasonNone) {
		h.Errorf("CLOSE_RSP for %d with reason %v and %q, want %v and %q", id, got.Reason, got.Error, h.reason(r), text)
	}
}

// over expects the end of the stream.
func (h *hostileClient) over(p *tunneltest.ClientPeer, want codes.Code) {
	h.Helper()
	if code := statusOf(p.ExpectEnd()); code != want {
		h.Errorf("the stream ended with %v, want %v", code, want)
	}
}

// refused is the end of a stream whose dial has failed: the server's doing, which
// waits a moment for old clients, who are in no hurry to see it many times.
func (h *hostileClient) refused(p *tunneltest.ClientPeer) {
	h.Helper()
	if h.ext == 0 {
		p.Close()
		return
	}
	h.over(p, codes.OK)
}

func statusOf(err error) codes.Code {
	if errors.Is(err, io.EOF) {
		return codes.OK
	}
	return status.Code(err)
}

// Whatever a client sends, a healthy tunnel beside it notices nothing, nothing is
// left behind, and the client learns what PROTOCOL.md says.
func TestBehaviour11HostileClients(t *testing.T) {
	atOnce(t, func(t *testing.T, k kind) {
		s := newStand(t, k, standOptions{ids: []string{""}})
		echoes, hold := newEndpoint(t, echo), newEndpoint(t, neverCloses)
		hole := blackHole(t)
		n := startNeighbour(t, s.front, newEndpoint(t, echo).addr)
		for name, ext := range map[string]wire.Extensions{"new": link.ClientExtensions, "old": 0} {
			for _, script := range clientScripts() {
				t.Run(name+" client: "+script.name, func(t *testing.T) {
					script.run(&hostileClient{T: t, s: s, ext: ext, echo: echoes, hold: hold, hole: hole})
					n.unmoved(t)
					gone(t, echoes)
					gone(t, hold)
					s.alive(t)
				})
			}
		}
		n.stop(t)
		s.quiet()
	}, grpcSingle, grpcTLS)
}

type clientScript struct {
	name string
	run  func(h *hostileClient)
}

func clientScripts() []clientScript {
	return []clientScript{
		{"unknown packet types", (*hostileClient).unknownTypes},
		{"packets that only others send", (*hostileClient).misdirected},
		{"connection 0", (*hostileClient).connectionZero},
		{"data before a dial", (*hostileClient).dataFirst},
		{"half-close before a dial", (*hostileClient).halfCloseFirst},
		{"close before a dial", (*hostileClient).closeFirst},
		{"mismatched payloads", (*hostileClient).mismatched},
		{"no packets at all", (*hostileClient).garbage},
		{"a second dial", (*hostileClient).secondDial},
		{"packets before the answer", (*hostileClient).early},
		{"forged connection IDs", (*hostileClient).forged},
		{"data behind a half-close", (*hostileClient).late},
		{"packets behind a close", (*hostileClient).afterClose},
		{"empty data", (*hostileClient).empty},
		{"other networks", (*hostileClient).networks},
		{"impossible addresses", (*hostileClient).addresses},
		{"oversize messages", (*hostileClient).oversize},
		{"equal dial IDs", (*hostileClient).equalIDs},
		{"odd dial IDs", (*hostileClient).oddIDs},
		{"anything in any order", (*hostileClient).anything},
	}
}

func (h *hostileClient) unknownTypes() {
	p := h.open()
	for _, b := range unknownPackets() {
		p.SendRaw(b)
	}
	h.usable(p)
}

func (h *hostileClient) misdirected() {
	p := h.open()
	id := wire.ConnectionID(1)
	p.Send(
		wire.Packet{Type: wire.DialResponse, DialID: 5, ConnectionID: id},
		wire.Packet{Type: wire.DialResponse, DialID: 5, Error: "no"},
		wire.Packet{Type: wire.CloseResponse, ConnectionID: id},
		wire.Packet{Type: wire.DialClose, DialID: 77},
		wire.Packet{Type: wire.Drain},
		wire.Packet{Type: wire.Credit, ConnectionID: id, Window: -1},
		wire.Packet{Type: wire.Ping, Nonce: 9},
		wire.Packet{Type: wire.Pong, Nonce: 9},
		wire.Packet{Type: wire.Ready},
		wire.Packet{Type: wire.ServerCount, Count: 100},
	)
	h.usable(p)
}

func (h *hostileClient) connectionZero() {
	p := h.open()
	nobody := func() {
		p.Send(data(0, "for nobody"), wire.Packet{Type: wire.CloseRequest}, wire.Packet{Type: wire.HalfClose})
	}
	nobody()
	id := h.dial(p, h.echo)
	nobody()
	h.echoes(p, id)
	p.Close()
}

func (h *hostileClient) dataFirst() {
	p := h.open()
	p.Send(data(5, word))
	h.closed(p, 5, wire.ReasonProtocolError, "backend not initialized")
	h.over(p, codes.OK)
}

func (h *hostileClient) halfCloseFirst() {
	p := h.open()
	p.Send(wire.Packet{Type: wire.HalfClose, ConnectionID: 5})
	if !h.ext.Has(wire.ExtHalfClose) { // a packet that it does not know
		h.usable(p)
		return
	}
	h.closed(p, 5, wire.ReasonProtocolError, "backend uninitialized")
	h.over(p, codes.OK)
}

func (h *hostileClient) closeFirst() {
	p := h.open()
	p.Send(wire.Packet{Type: wire.CloseRequest, ConnectionID: 5})
	if got := p.ExpectOn(wire.CloseResponse, 5); got.Error != "backend uninitialized" {
		h.Errorf("CLOSE_RSP with %q", got.Error)
	}
	h.usable(p)
}

func (h *hostileClient) mismatched() {
	for i, b := range mismatchedPackets(wire.DialRequest, wire.Data, wire.CloseRequest, wire.DialClose) {
		p := h.open()
		p.SendRaw(b)
		h.over(p, codes.InvalidArgument)

		p, id := h.dialled(h.hold)
		if i == 0 {
			p.SendRaw(nil)
		} else {
			p.SendRaw(b)
		}
		h.closed(p, id, wire.ReasonProtocolError, "")
		p.ExpectEnd()
	}
}

func (h *hostileClient) garbage() {
	for _, b := range [][]byte{{0xff, 0xff, 0xff, 0xff}, {0x0a}, []byte("CONNECT x HTTP/1.1\r\n\r\n"), {0x12, 0x7f, 1}} {
		p, _ := h.dialled(h.hold)
		p.SendRaw(b) // the tunnel may be told of its end, or not
		process.Eventually(h, hang, "the stream of garbage is over", func() bool { return h.hold.live() == 0 })
	}
}

func (h *hostileClient) secondDial() {
	p, id := h.dialled(h.hold)
	p.Send(wire.Packet{Type: wire.DialRequest, DialID: 43, Protocol: "tcp", Address: h.echo.addr})
	if got := p.Expect(wire.DialResponse); got.DialID != 43 || got.Error == "" || got.ConnectionID != 0 || got.Reason != h.reason(wire.ReasonProtocolError) {
		h.Errorf("the second dial was answered with %+v", got)
	}
	h.closed(p, id, wire.ReasonProtocolError, "")
	h.over(p, codes.OK)
}

// early sends before the answer, which does not come, what only makes sense
// behind it.
func (h *hostileClient) early() {
	for _, k := range []wire.Packet{
		data(9, word),
		{Type: wire.CloseRequest, ConnectionID: 9},
		{Type: wire.HalfClose, ConnectionID: 9},
	} {
		if k.Type == wire.HalfClose && !h.ext.Has(wire.ExtHalfClose) {
			continue
		}
		p := h.open()
		p.Send(wire.Packet{Type: wire.DialRequest, DialID: 42, Protocol: "tcp", Address: h.hole})
		h.pending(1)
		p.Send(k)
		h.closed(p, 9, wire.ReasonProtocolError, "")
		h.pending(0)
		// An answer to the dial may come behind that, or not: the end tells.
		process.Within(2*time.Second, func() bool { return len(p.Skip(wire.DialResponse)) > 0 })
		p.ExpectEnd()
	}
}

func (h *hostileClient) pending(n float64) {
	h.Helper()
	process.Eventually(h, soon, fmt.Sprintf("%v pending dials", n), func() bool { return h.s.server.Metric(pendingDials) == n })
}
