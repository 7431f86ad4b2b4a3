package behaviour

import (
	"math/rand/v2"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/culvert-proxy/culvert/rig/process"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// forged names another client's connection.
func (h *hostileClient) forged() {
	victim, theirs := h.dialled(h.echo)
	for _, k := range []wire.Packet{
		data(theirs, "not yours"),
		{Type: wire.CloseRequest, ConnectionID: theirs},
		{Type: wire.HalfClose, ConnectionID: theirs},
		data(1<<40, "nobody's"),
		data(-1, "nobody's"),
	} {
		if k.Type == wire.HalfClose && !h.ext.Has(wire.ExtHalfClose) {
			continue
		}
		p, own := h.dialled(h.hold)
		id := k.ConnectionID
		p.Send(k)
		h.closed(p, id, wire.ReasonProtocolError, "mismatched connection IDs")
		h.closed(p, own, wire.ReasonProtocolError, "")
		h.over(p, codes.OK)
		h.echoes(victim, theirs)
	}
	victim.Close()
}

func (h *hostileClient) late() {
	p, id := h.dialled(h.hold)
	p.Send(wire.Packet{Type: wire.HalfClose, ConnectionID: id}, wire.Packet{Type: wire.HalfClose, ConnectionID: id})
	if !h.ext.Has(wire.ExtHalfClose) { // nothing happened
		p.Send(data(id, word))
		p.Close()
		return
	}
	p.Send(data(id, word))
	h.closed(p, id, wire.ReasonProtocolError, "")
	h.over(p, codes.OK)
}

func (h *hostileClient) afterClose() {
	p, id := h.dialled(h.echo)
	stream := p.Stream() // which may have ended before all of it is sent
	for _, k := range []wire.Packet{
		{Type: wire.CloseRequest, ConnectionID: id},
		{Type: wire.CloseRequest, ConnectionID: id},
		data(id, word),
		data(id+1, word),
		{Type: wire.HalfClose, ConnectionID: id},
		{Type: wire.DialRequest, DialID: 44, Protocol: "tcp", Address: h.echo.addr},
	} {
		stream.SendMsg(&k)
	}
	h.closed(p, id, wire.ReasonNone, "")
	h.over(p, codes.OK)
}

func (h *hostileClient) empty() {
	p, id := h.dialled(h.echo)
	for range 100 {
		p.Send(wire.Packet{Type: wire.Data, ConnectionID: id})
	}
	h.echoes(p, id)
	p.Close()
}

func (h *hostileClient) networks() {
	for _, network := range []string{"", "unix", "udp", "TCP", "tcp7", strings.Repeat("tcp", 1000)} {
		p := h.open()
		p.SendRaw(rawDial(network, h.echo.addr, 42))
		if got := p.Expect(wire.DialResponse); got.DialID != 42 || got.Error == "" || got.Reason != h.reason(wire.ReasonProtocol) {
			h.Errorf("%q was answered with %+v", network, got)
		}
		h.refused(p)
	}
}

func (h *hostileClient) addresses() {
	for _, address := range []string{
		"", ":", "x", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:-1", "[::1", "[::1]:x", "a b:1", "\x00:80",
		"\xff\xfe:80", "x\r\nHost: y:80", strings.Repeat("a", 1<<20) + ":80", "/etc/passwd", "unix:///run/x:80",
	} {
		p := h.open()
		p.SendRaw(rawDial("tcp", address, 42))
		if got := p.Expect(wire.DialResponse); got.DialID != 42 || got.Error == "" || got.ConnectionID != 0 {
			h.Errorf("%.40q was answered with %+v", address, got)
		}
		h.refused(p)
	}
}

func (h *hostileClient) oversize() {
	p, _ := h.dialled(h.hold)
	p.SendRaw(make([]byte, 5<<20))
	process.Eventually(h, hang, "the oversize stream is over", func() bool { return h.hold.live() == 0 })
}

func (h *hostileClient) equalIDs() {
	a, id := h.dialled(h.echo)
	b, other := h.dialled(h.echo) // its dial ID is the same
	for range 10 {
		h.echoes(a, id)
		h.echoes(b, other)
	}
	a.Close()
	h.echoes(b, other)
	b.Close()
}

func (h *hostileClient) oddIDs() {
	for _, random := range []int64{0, -1, 1<<63 - 1, -1 << 63} {
		p := h.open()
		p.SendRaw(rawDial("tcp", h.echo.addr, random))
		got := p.Expect(wire.DialResponse)
		if int64(got.DialID) != random || got.Error != "" {
			h.Errorf("dial ID %d was answered with %+v", random, got)
		}
		h.echoes(p, got.ConnectionID)
		p.Close()
	}
}

// anything sends packets of all kinds in random order, on many streams.
func (h *hostileClient) anything() {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	defer func() {
		if h.Failed() {
			h.Logf("the seed was %d", seed)
		}
	}()
	var open []*tunneltest.ClientPeer
	for range scaled(60, 2000) {
		p := h.open()
		stream := p.Stream()
		for range random.IntN(12) {
			k := wire.Packet{
				Type:         []wire.PacketType{0, 1, 2, 3, 4, 5, 6, 7, 64, 65, 66, 67, 68, 69, 70}[random.IntN(15)],
				DialID:       wire.DialID(random.IntN(2)),
				ConnectionID: wire.ConnectionID(random.IntN(30)),
				Protocol:     "tcp",
				Address:      []string{h.echo.addr, h.hold.addr, h.hole, ""}[random.IntN(4)],
				Window:       random.Int64N(3) - 1,
			}
			if random.IntN(2) == 0 {
				k.Payload = wire.PayloadBytes([]byte(word))
			}
			if stream.SendMsg(&k) != nil {
				break
			}
		}
		switch random.IntN(4) {
		case 0:
			p.CloseSend()
			p.Close()
		case 1:
			p.Close()
		default:
			open = append(open, p)
		}
	}
	for _, p := range open {
		p.Close()
	}
	h.pending(0)
}
