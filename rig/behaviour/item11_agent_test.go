package behaviour

import (
	"net/http"
	"testing"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// hostileHost is served by the scripted agent only, everything else by the real
// one.
const (
	hostileHost = "hostile.test"
	hostileAddr = hostileHost + ":80"
)

// hostileAgent is a script's view of the stand: an agent's link on which a tunnel
// to a client is open that must notice nothing.
type hostileAgent struct {
	*testing.T
	*tunneltest.AgentPeer
	s     *stand
	next  wire.ConnectionID
	quiet tunnel
}

const quietID = 1000

// newHostileAgent connects the scripted agent and opens its quiet tunnel.
func newHostileAgent(t *testing.T, s *stand) *hostileAgent {
	t.Helper()
	h := &hostileAgent{T: t, s: s, next: quietID}
	h.AgentPeer = s.scriptedAgent(t, link.AgentHello{
		AgentID: "hostile", Instance: "instance", Slot: "0", Extensions: wire.AllExtensions,
		Identifiers: "host=" + hostileHost + "&exclude-default=true",
	})
	h.Send(wire.Packet{Type: wire.Ready})
	s.awaitLinks(2)
	h.quiet, _ = h.tunnel()
	return h
}

// asked starts a client's dial and returns the DIAL_REQ that it led to, and its
// result.
func (h *hostileAgent) asked() (wire.Packet, chan dialled) {
	h.Helper()
	result := make(chan dialled, 1)
	go func() {
		c, err := h.s.dial(hostileAddr)
		result <- dialled{tunnel: c, err: err}
	}()
	return h.ExpectDial(hostileAddr), result
}

// dialled is what became of a client's dial.
type dialled struct {
	tunnel
	err error
}

// tunnel opens a tunnel through the link.
func (h *hostileAgent) tunnel() (tunnel, wire.ConnectionID) {
	h.Helper()
	dial, result := h.asked()
	id := h.next
	h.next++
	h.Send(wire.Packet{Type: wire.DialResponse, DialID: dial.DialID, ConnectionID: id, Window: 1 << 20})
	d := <-result
	if d.err != nil {
		h.Fatalf("a dial through the scripted agent: %v", d.err)
	}
	return d.tunnel, id
}

// works checks that a tunnel carries data both ways.
func (h *hostileAgent) works(c tunnel, id wire.ConnectionID) {
	h.Helper()
	c.SetDeadline(time.Now().Add(hang))
	defer c.SetDeadline(time.Time{})
	if _, err := c.Write([]byte(word)); err != nil {
		h.Fatal(err)
	}
	h.ExpectData(id, []byte(word))
	h.SendData(id, []byte(word))
	if err := expect(c, []byte(word)); err != nil {
		h.Fatal(err)
	}
}

// unmoved checks that the quiet tunnel works, and that nothing else was sent to
// the agent meanwhile.
func (h *hostileAgent) unmoved() {
	h.Helper()
	h.works(h.quiet, quietID)
}

// aborts expects a CLOSE_REQ, and answers it as an agent would.
func (h *hostileAgent) aborts(id wire.ConnectionID, r wire.Reason) {
	h.Helper()
	if got := h.ExpectOn(wire.CloseRequest, id); got.Reason != r {
		h.Errorf("CLOSE_REQ for %d with reason %v, want %v", id, got.Reason, r)
	}
	h.Send(wire.Packet{Type: wire.CloseResponse, ConnectionID: id, Reason: r})
}

// closes expects the CLOSE_REQ of a client's orderly close. Over TLS it may look
// like a half-close first.
func (h *hostileAgent) closes(id wire.ConnectionID) {
	h.Helper()
	got := h.Next()
	if got.Type == wire.HalfClose && got.ConnectionID == id {
		got = h.Next()
	}
	if got.Type != wire.CloseRequest || got.ConnectionID != id || got.Reason != wire.ReasonNone {
		h.Errorf("got %v for %d with reason %v, want an orderly CLOSE_REQ for %d", got.Type, got.ConnectionID, got.Reason, id)
	}
	h.Send(wire.Packet{Type: wire.CloseResponse, ConnectionID: id})
}

// breaks checks that a client's tunnel ends for one of these reasons.
func (h *hostileAgent) breaks(c tunnel, r ...wire.Reason) {
	h.Helper()
	c.SetDeadline(time.Now().Add(hang))
	if err := notAbnormal(h.s.kind, take(c).err, r...); err != nil {
		h.Error(err)
	}
	c.Close()
}

// fails checks how a client's dial failed.
func (h *hostileAgent) fails(result chan dialled, r wire.Reason, code int) {
	h.Helper()
	d := <-result
	if d.err == nil {
		d.Close()
		h.Fatal("the dial succeeded")
	}
	if err := failureOf(d.err).check(h.s.kind, r, code, ""); err != nil {
		h.Error(err)
	}
}

// Whatever an agent sends, its other tunnels and those of other agents notice
// nothing, and the tunnel that it is about ends for a reason that its client
// learns.
func TestBehaviour11HostileAgents(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		s := newStand(t, k, standOptions{
			server: []string{"--proxy-strategies=destHost"},
			ids:    []string{"healthy"},
			agent:  func(int) []string { return []string{"--agent-identifiers=ipv4=127.0.0.1"} },
		})
		e := newEndpoint(t, echo)
		n := startNeighbour(t, s.front, e.addr)
		for _, script := range agentScripts() {
			t.Run(script.name, func(t *testing.T) {
				h := newHostileAgent(t, s)
				script.run(h)
				if !script.lost {
					h.unmoved()
					h.quiet.Close()
					h.closes(quietID)
				}
				n.unmoved(t)
				s.alive(t)
				h.AgentPeer.Close()
				s.awaitLinks(1)
			})
		}
		n.stop(t)
		gone(t, e)
		s.quiet()
	}, connectUDS, connectTLS, grpcReusable)
}

type agentScript struct {
	name string
	lost bool // the link does not survive
	run  func(h *hostileAgent)
}

func agentScripts() []agentScript {
	return []agentScript{
		{"unknown packet types", false, (*hostileAgent).unknownTypes},
		{"packets that only others send", false, (*hostileAgent).misdirected},
		{"mismatched payloads", false, (*hostileAgent).mismatched},
		{"connection 0", false, (*hostileAgent).connectionZero},
		{"unknown connections", false, (*hostileAgent).unknownConnections},
		{"forged dial IDs", false, (*hostileAgent).forgedDials},
		{"data before the answer", false, (*hostileAgent).early},
		{"successes without a good connection ID", false, (*hostileAgent).badSuccess},
		{"more data than credit", false, (*hostileAgent).overdraft},
		{"credit that makes no sense", false, (*hostileAgent).absurdCredit},
		{"half-closes", false, (*hostileAgent).halfCloses},
		{"endings of what has ended", false, (*hostileAgent).repeatedEnds},
		{"READY and DRAIN again", false, (*hostileAgent).again},
		{"no packets at all", true, (*hostileAgent).garbage},
		{"oversize messages", true, (*hostileAgent).oversize},
		{"bad headers", false, (*hostileAgent).badHeaders},
	}
}

func (h *hostileAgent) unknownTypes() {
	for _, b := range unknownPackets() {
		h.SendRaw(b)
	}
}

func (h *hostileAgent) misdirected() {
	h.Send(
		wire.Packet{Type: wire.DialRequest, DialID: 5, Protocol: "tcp", Address: "127.0.0.1:1"},
		wire.Packet{Type: wire.CloseRequest, ConnectionID: quietID},
		wire.Packet{Type: wire.ServerCount, Count: 100},
		wire.Packet{Type: wire.DialClose, DialID: 5},
		wire.Packet{Type: wire.Pong, Nonce: 5},
	)
	for range 1000 {
		h.Send(wire.Packet{Type: wire.Ping, Nonce: 5})
	}
}

func (h *hostileAgent) mismatched() {
	for _, b := range mismatchedPackets(wire.DialRequest, wire.DialResponse, wire.CloseRequest, wire.CloseResponse,
		wire.Data, wire.DialClose, wire.Drain, wire.Credit, wire.HalfClose, wire.Ping, wire.Pong, wire.Ready, wire.ServerCount) {
		h.SendRaw(b)
	}
}

func (h *hostileAgent) connectionZero() {
	h.Send(
		data(0, word),
		wire.Packet{Type: wire.CloseResponse},
		wire.Packet{Type: wire.HalfClose},
		wire.Packet{Type: wire.Credit, Window: -1},
		wire.Packet{Type: wire.Data, ConnectionID: quietID}, // without a byte
	)
}

func (h *hostileAgent) unknownConnections() {
	for _, id := range []wire.ConnectionID{7, -7, 1 << 50} {
		h.Send(data(id, word), data(id, word), data(id, word))
		h.aborts(id, wire.ReasonAborted) // once
		h.unmoved()
		h.Send(data(id, word))
		h.aborts(id, wire.ReasonAborted)
	}
	h.Send(
		wire.Packet{Type: wire.CloseResponse, ConnectionID: 8},
		wire.Packet{Type: wire.HalfClose, ConnectionID: 8},
		wire.Packet{Type: wire.Credit, ConnectionID: 8, Window: -1},
	)
}

func (h *hostileAgent) forgedDials() {
	h.Send(
		wire.Packet{Type: wire.DialResponse, DialID: 99, Error: "no"},
		wire.Packet{Type: wire.DialResponse, DialID: 99, ConnectionID: 7},
	)
	h.aborts(7, wire.ReasonAborted)
	// With the ID of a tunnel that exists.
	h.Send(wire.Packet{Type: wire.DialResponse, DialID: 99, ConnectionID: quietID})
	h.unmoved()
	// An answer that comes twice is one too many.
	dial, result := h.asked()
	answer := wire.Packet{Type: wire.DialResponse, DialID: dial.DialID, ConnectionID: 8, Window: 1 << 20}
	h.Send(answer, answer)
	d := <-result
	if d.err != nil {
		h.Fatal(d.err)
	}
	h.works(d.tunnel, 8)
	d.Close()
	h.closes(8)
}

func (h *hostileAgent) early() {
	dial, result := h.asked()
	h.Send(data(9, word), wire.Packet{Type: wire.HalfClose, ConnectionID: 9}, wire.Packet{Type: wire.Credit, ConnectionID: 9, Window: 5})
	h.aborts(9, wire.ReasonAborted)
	h.Send(wire.Packet{Type: wire.DialResponse, DialID: dial.DialID, ConnectionID: 9, Window: 1 << 20})
	d := <-result
	if d.err != nil {
		h.Fatal(d.err)
	}
	h.works(d.tunnel, 9)
	d.Close()
	h.closes(9)
}

func (h *hostileAgent) badSuccess() {
	for _, id := range []wire.ConnectionID{0, -3, quietID} {
		dial, result := h.asked()
		h.Send(wire.Packet{Type: wire.DialResponse, DialID: dial.DialID, ConnectionID: id, Window: 1 << 20})
		h.fails(result, wire.ReasonProtocolError, http.StatusBadGateway)
		h.unmoved()
	}
}

func (h *hostileAgent) overdraft() {
	dial, result := h.asked()
	h.Send(wire.Packet{Type: wire.DialResponse, DialID: dial.DialID, ConnectionID: 9})
	d := <-result
	if d.err != nil {
		h.Fatal(d.err)
	}
	h.Send(wire.Packet{Type: wire.Data, ConnectionID: 9, Payload: wire.PayloadBytes(make([]byte, dial.Window+1))})
	h.aborts(9, wire.ReasonCreditViolation)
	h.breaks(d.tunnel, wire.ReasonCreditViolation)
}

func (h *hostileAgent) absurdCredit() {
	for _, n := range []int64{0, -1, 1 << 41, 1<<63 - 1} {
		c, id := h.tunnel()
		h.Send(wire.Packet{Type: wire.Credit, ConnectionID: id, Window: n})
		h.aborts(id, wire.ReasonCreditViolation)
		h.breaks(c, wire.ReasonCreditViolation)
	}
}
