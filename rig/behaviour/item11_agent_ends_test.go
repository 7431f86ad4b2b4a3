package behaviour

import (
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/culvert-proxy/culvert/rig/process"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

func (h *hostileAgent) halfCloses() {
	c, id := h.tunnel()
	half := wire.Packet{Type: wire.HalfClose, ConnectionID: id}
	h.Send(data(id, word), half, half)
	c.SetDeadline(time.Now().Add(hang))
	if err := expect(c, []byte(word)); err != nil {
		h.Error(err)
	}
	if err := expectEOF(c); err != nil {
		h.Error(err)
	}
	if _, err := c.Write([]byte(word)); err != nil { // the other direction goes on
		h.Error(err)
	}
	h.ExpectData(id, []byte(word))
	h.Send(data(id, "behind the end"))
	h.aborts(id, wire.ReasonProtocolError)
	c.Close()
}

func (h *hostileAgent) repeatedEnds() {
	c, id := h.tunnel()
	end := wire.Packet{Type: wire.CloseResponse, ConnectionID: id}
	h.Send(data(id, word), end, end, wire.Packet{Type: wire.HalfClose, ConnectionID: id}, wire.Packet{Type: wire.Credit, ConnectionID: id, Window: -1})
	c.SetDeadline(time.Now().Add(hang))
	if err := expect(c, []byte(word)); err != nil {
		h.Error(err)
	}
	if err := expectEOF(c); err != nil {
		h.Error(err)
	}
	c.Close()
	h.Send(data(id, "behind the end"))
	h.aborts(id, wire.ReasonAborted)
}

func (h *hostileAgent) again() {
	ready, drain := wire.Packet{Type: wire.Ready}, wire.Packet{Type: wire.Drain}
	h.Send(ready, drain, drain, ready)
	process.Eventually(h.T, hang, "the server hears of the drain", func() bool {
		return h.s.server.Metric(`culvert_server_agent_links{state="draining"}`) == 1
	})
	c, id := h.tunnel() // a last resort
	h.works(c, id)
	c.Close()
	h.closes(id)
}

// garbage ends the link, and with it what was on it.
func (h *hostileAgent) garbage() {
	_, result := h.asked()
	h.SendRaw([]byte{0xff, 0xff, 0xff, 0xff})
	h.linkEnds()
	h.fails(result, wire.ReasonBackendLost, http.StatusBadGateway)
}

func (h *hostileAgent) oversize() {
	h.SendRaw(make([]byte, 17<<20))
	h.linkEnds()
}

func (h *hostileAgent) linkEnds() {
	h.Helper()
	h.breaks(h.quiet, wire.ReasonLinkLost)
	if code := statusOf(h.ExpectEnd()); code == codes.OK {
		h.Error("the link ended in order")
	}
}

// badHeaders are refused before anything begins.
func (h *hostileAgent) badHeaders() {
	dial, address, creds := h.s.agentPort()
	for name, headers := range map[string]metadata.MD{
		"no ID":           {},
		"two IDs":         {wire.HeaderAgentID: {"a", "b"}},
		"two identifiers": {wire.HeaderAgentID: {"a"}, wire.HeaderAgentIdentifiers: {"host=a", "host=b"}},
		"bad identifiers": {wire.HeaderAgentID: {"a"}, wire.HeaderAgentIdentifiers: {"host=%zz"}},
		"long instance":   {wire.HeaderAgentID: {"a"}, wire.HeaderInstance: {strings.Repeat("x", 129)}},
		"long slot":       {wire.HeaderAgentID: {"a"}, wire.HeaderLink: {strings.Repeat("x", 129)}},
	} {
		if code := statusOf(tunneltest.TryConnect(h.T, dial, address, headers, creds).ExpectEnd()); code != codes.Unknown {
			h.Errorf("%s: %v", name, code)
		}
	}
}
