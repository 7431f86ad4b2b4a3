package behaviour

import (
	"crypto/tls"
	"net"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/culvert-proxy/culvert/rig/process"
	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// hostileServer is a script's view of an agent that is connected to the script,
// and to a real server besides.
type hostileServer struct {
	*testing.T
	peer *tunneltest.ServerPeer
	fake *tunneltest.Server
	echo *endpoint
	hold *endpoint // reads, and never closes
	hole string
	next wire.DialID
}

// newHostileStand starts a server and an agent that is connected to it and to the
// script. Both have the same port, on two addresses. The agent connects to one at a
// time, perhaps to the script first, which must not let it wait.
func newHostileStand(t *testing.T, k kind) (*stand, *tunneltest.Server) {
	t.Helper()
	s := newStand(t, k, standOptions{server: []string{"--server-count=2"}})
	const host = "127.0.0.2"
	listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(s.server.Agents)))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(s.ground.Server.Cert, s.ground.Server.Key)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{pair},
		ClientCAs:    clientTLS(t, s.ground).RootCAs,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		MinVersion:   tls.VersionTLS12,
	}
	fake := tunneltest.Serve(t, listener, grpc.Creds(credentials.NewTLS(config)))
	s.agents = append(s.agents, s.ground.StartAgent(process.AgentOptions{
		Servers: []*process.Server{s.server, {Host: host, Agents: s.server.Agents}},
	}))
	return s, fake
}

// accept waits for the agent, and answers like a server of today.
func (h *hostileServer) accept() {
	h.Helper()
	h.peer = h.fake.AcceptAgent(link.ServerHello{ServerID: "hostile", ServerCount: 2, Extensions: wire.AllExtensions})
	h.peer.Expect(wire.Ready)
}

// ask sends a DIAL_REQ with a dial ID that was not used yet.
func (h *hostileServer) ask(address string) wire.DialID {
	h.Helper()
	h.next++
	h.peer.Send(wire.Packet{Type: wire.DialRequest, DialID: h.next, Protocol: "tcp", Address: address, Window: 1 << 20, CanHalfClose: true})
	return h.next
}

// answer expects the answer to a dial.
func (h *hostileServer) answer(id wire.DialID) wire.Packet {
	h.Helper()
	got := h.peer.Expect(wire.DialResponse)
	if got.DialID != id {
		h.Errorf("an answer to dial %d, not %d", got.DialID, id)
	}
	return got
}

// dial opens a connection to e, and returns its ID and what it may be sent.
func (h *hostileServer) dial(e *endpoint) (wire.ConnectionID, int64) {
	h.Helper()
	got := h.answer(h.ask(e.addr))
	if got.Error != "" || got.ConnectionID <= 0 {
		h.Fatalf("the dial was answered with %+v", got)
	}
	return got.ConnectionID, got.Window
}

func (h *hostileServer) works(id wire.ConnectionID) {
	h.Helper()
	h.peer.Send(data(id, word))
	h.peer.ExpectData(id, []byte(word))
}

// closed expects a CLOSE_RSP.
func (h *hostileServer) closed(id wire.ConnectionID, r wire.Reason, text string) {
	h.Helper()
	got := h.peer.ExpectOn(wire.CloseResponse, id)
	if got.Reason != r || !strings.Contains(got.Error, text) {
		h.Errorf("CLOSE_RSP for %d with reason %v and %q, want %v and %q", id, got.Reason, got.Error, r, text)
	}
}

func (h *hostileServer) close(id wire.ConnectionID) {
	h.Helper()
	h.peer.Send(wire.Packet{Type: wire.CloseRequest, ConnectionID: id})
	h.closed(id, wire.ReasonNone, "")
}

// Whatever a server sends to an agent, the tunnels of the agent's other server
// notice nothing, nor do the others of this one, and the agent goes on.
func TestBehaviour11HostileServers(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		s, fake := newHostileStand(t, k)
		echoes, hold := newEndpoint(t, echo), newEndpoint(t, neverCloses)
		h := &hostileServer{T: t, fake: fake, echo: echoes, hold: hold, hole: blackHole(t)}
		h.badHeaders()
		h.accept()
		s.awaitLinks(1)
		n := startNeighbour(t, s.front, newEndpoint(t, echo).addr)
		for _, script := range serverScripts() {
			t.Run(script.name, func(t *testing.T) {
				h.T = t
				quiet, _ := h.dial(echoes)
				script.run(h)
				if script.lost {
					h.accept() // it connects anew
				} else {
					h.works(quiet)
					h.close(quiet)
				}
				n.unmoved(t)
				gone(t, echoes)
				gone(t, hold)
				s.alive(t)
			})
		}
		h.T = t
		n.stop(t)
		s.quiet()
	}, connectUDS)
}

type serverScript struct {
	name string
	lost bool // the link does not survive
	run  func(h *hostileServer)
}

func serverScripts() []serverScript {
	return []serverScript{
		{"unknown packet types", false, (*hostileServer).unknownTypes},
		{"packets that only others send", false, (*hostileServer).misdirected},
		{"mismatched payloads", false, (*hostileServer).mismatched},
		{"connection 0", false, (*hostileServer).connectionZero},
		{"unknown connections", false, (*hostileServer).unknownConnections},
		{"other networks", false, (*hostileServer).networks},
		{"impossible addresses", false, (*hostileServer).addresses},
		{"equal dial IDs", false, (*hostileServer).equalIDs},
		{"dials given up", false, (*hostileServer).dialCloses},
		{"more data than credit", false, (*hostileServer).overdraft},
		{"credit that makes no sense", false, (*hostileServer).absurdCredit},
		{"data behind a half-close", false, (*hostileServer).late},
		{"packets behind a close", false, (*hostileServer).afterClose},
		{"counts and drains", false, (*hostileServer).counts},
		{"no packets at all", true, (*hostileServer).garbage},
		{"oversize messages", true, (*hostileServer).oversize},
	}
}

// badHeaders: the agent does not keep such a link, and tries again.
func (h *hostileServer) badHeaders() {
	for _, headers := range []metadata.MD{
		{},
		{wire.HeaderServerID: {"a", "b"}, wire.HeaderServerCount: {"2"}},
		{wire.HeaderServerID: {"a"}, wire.HeaderServerCount: {"many"}},
	} {
		p := h.fake.AcceptSilently()
		p.SendHeaders(headers)
		p.ExpectEnd()
	}
}

func (h *hostileServer) unknownTypes() {
	for _, b := range unknownPackets() {
		h.peer.SendRaw(b)
	}
}

func (h *hostileServer) misdirected() {
	h.peer.Send(
		wire.Packet{Type: wire.DialResponse, DialID: 5, ConnectionID: 1},
		wire.Packet{Type: wire.CloseResponse, ConnectionID: 1},
		wire.Packet{Type: wire.Ready},
		wire.Packet{Type: wire.Pong, Nonce: 5},
	)
	for range 1000 {
		h.peer.Send(wire.Packet{Type: wire.Ping, Nonce: 5})
	}
}

func (h *hostileServer) mismatched() {
	for _, b := range mismatchedPackets(wire.DialRequest, wire.DialResponse, wire.CloseRequest, wire.CloseResponse,
		wire.Data, wire.DialClose, wire.Drain, wire.Credit, wire.HalfClose, wire.Ping, wire.Pong, wire.Ready, wire.ServerCount) {
		h.peer.SendRaw(b)
	}
}

func (h *hostileServer) connectionZero() {
	h.peer.Send(
		data(0, word),
		wire.Packet{Type: wire.CloseRequest},
		wire.Packet{Type: wire.HalfClose},
		wire.Packet{Type: wire.Credit, Window: -1},
	)
}

func (h *hostileServer) unknownConnections() {
	for _, id := range []wire.ConnectionID{1 << 40, -1} {
		h.peer.Send(data(id, word))
		h.closed(id, wire.ReasonProtocolError, "unrecognized connectID")
		h.peer.Send(wire.Packet{Type: wire.CloseRequest, ConnectionID: id})
		h.closed(id, wire.ReasonProtocolError, "Unknown connectID")
		h.peer.Send(wire.Packet{Type: wire.HalfClose, ConnectionID: id}, wire.Packet{Type: wire.Credit, ConnectionID: id, Window: -1})
	}
}

func (h *hostileServer) networks() {
	for _, network := range []string{"", "unix", "udp", "TCP", "tcp7"} {
		h.next++
		h.peer.SendRaw(rawDial(network, h.echo.addr, int64(h.next)))
		if got := h.answer(h.next); got.Reason != wire.ReasonProtocol || got.Error == "" || got.ConnectionID != 0 {
			h.Errorf("%q was answered with %+v", network, got)
		}
	}
}

func (h *hostileServer) addresses() {
	for _, address := range []string{"", ":", "x", "127.0.0.1:99999", "[::1", "\x00:80", "\xff\xfe:80", strings.Repeat("a", 1<<20) + ":80"} {
		h.next++
		h.peer.SendRaw(rawDial("tcp", address, int64(h.next)))
		if got := h.answer(h.next); got.Error == "" || got.ConnectionID != 0 {
			h.Errorf("%.40q was answered with %+v", address, got)
		}
	}
}

func (h *hostileServer) equalIDs() {
	twice := wire.Packet{Type: wire.DialRequest, DialID: 7, Protocol: "tcp", Address: h.echo.addr, Window: 1 << 20}
	h.peer.Send(twice, twice)
	a, b := h.answer(7), h.answer(7)
	if a.ConnectionID == b.ConnectionID {
		h.Errorf("two dials with connection ID %d", a.ConnectionID)
	}
	h.works(a.ConnectionID)
	h.close(a.ConnectionID)
	h.works(b.ConnectionID)
	h.close(b.ConnectionID)
}

// dialCloses gives up dials that are pending (these are never answered), unknown,
// or answered already.
func (h *hostileServer) dialCloses() {
	for range 10 {
		id := h.ask(h.hole)
		h.peer.Send(wire.Packet{Type: wire.DialClose, DialID: id})
	}
	h.peer.Send(wire.Packet{Type: wire.DialClose, DialID: 1 << 40})
	id, _ := h.dial(h.echo)
	h.works(id)
	h.close(id)
}

func (h *hostileServer) overdraft() {
	id, window := h.dial(h.hold)
	h.peer.Send(wire.Packet{Type: wire.Data, ConnectionID: id, Payload: wire.PayloadBytes(make([]byte, window+1))})
	h.closed(id, wire.ReasonCreditViolation, "")
}

func (h *hostileServer) absurdCredit() {
	for _, n := range []int64{0, -1, 1 << 41, 1<<63 - 1} {
		id, _ := h.dial(h.hold)
		h.peer.Send(wire.Packet{Type: wire.Credit, ConnectionID: id, Window: n})
		h.closed(id, wire.ReasonCreditViolation, "")
	}
}

func (h *hostileServer) late() {
	id, _ := h.dial(h.hold)
	half := wire.Packet{Type: wire.HalfClose, ConnectionID: id}
	h.peer.Send(half, half, data(id, word))
	h.closed(id, wire.ReasonProtocolError, "")
}

func (h *hostileServer) afterClose() {
	id, _ := h.dial(h.echo)
	h.works(id)
	h.close(id)
	h.peer.Send(wire.Packet{Type: wire.HalfClose, ConnectionID: id}, wire.Packet{Type: wire.Credit, ConnectionID: id, Window: -1}, data(id, word))
	h.closed(id, wire.ReasonProtocolError, "unrecognized connectID")
}

func (h *hostileServer) counts() {
	for _, n := range []int64{0, -5, 1 << 60, -1 << 63, 2} {
		h.peer.Send(wire.Packet{Type: wire.ServerCount, Count: n})
	}
	h.peer.Send(wire.Packet{Type: wire.Drain}, wire.Packet{Type: wire.Drain})
}

// garbage ends the link and resets what was on it.
func (h *hostileServer) garbage() {
	h.dial(h.hold)
	h.peer.SendRaw([]byte{0xff, 0xff, 0xff, 0xff})
	h.linkEnds()
}

func (h *hostileServer) oversize() {
	h.dial(h.hold)
	h.peer.SendRaw(make([]byte, 17<<20))
	h.linkEnds()
}

func (h *hostileServer) linkEnds() {
	h.Helper()
	process.Eventually(h.T, hang, "the endpoints' sockets are closed", func() bool { return h.hold.live() == 0 && h.echo.live() == 0 })
	h.peer.Close()
}
