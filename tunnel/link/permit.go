package link

import "github.com/culvert-proxy/culvert/tunnel/wire"

// permitted reports whether packets of type t may travel on a link with these
// extensions. Plain types and unknown ones may.
func permitted(ext wire.Extensions, t wire.PacketType) bool {
	switch t {
	case wire.Credit:
		return ext.Has(wire.ExtCredit)
	case wire.HalfClose:
		return ext.Has(wire.ExtHalfClose)
	case wire.Ping, wire.Pong:
		return ext.Has(wire.ExtPing)
	case wire.Ready:
		return ext.Has(wire.ExtReady)
	case wire.ServerCount:
		return ext.Has(wire.ExtServerCount)
	}
	return true
}

// strip clears the fields that these extensions do not permit, in both
// directions: they mean nothing to the peer, or nothing that was agreed.
func strip(ext wire.Extensions, p *wire.Packet) {
	if !ext.Has(wire.ExtCredit) {
		p.Window = 0
	}
	if !ext.Has(wire.ExtHalfClose) {
		p.CanHalfClose = false
	}
	if !ext.Has(wire.ExtReason) {
		p.Reason = wire.ReasonNone
	}
}
