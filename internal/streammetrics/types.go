package streammetrics

import "github.com/culvert-proxy/culvert/tunnel/wire"

// The known packet types are two runs of numbers: the plain protocol's from 0,
// and Culvert's from 64.
const (
	plainTypes = int(wire.Drain) + 1
	ownTypes   = int(wire.ServerCount-wire.Credit) + 1
	knownTypes = plainTypes + ownTypes
)

// index is t's place among the known types.
func index(t wire.PacketType) (i int, known bool) {
	switch {
	case t >= wire.DialRequest && t <= wire.Drain:
		return int(t), true
	case t >= wire.Credit && t <= wire.ServerCount:
		return plainTypes + int(t-wire.Credit), true
	}
	return 0, false
}

// types lists all known types.
func types() []wire.PacketType {
	all := make([]wire.PacketType, 0, knownTypes)
	for t := wire.DialRequest; t <= wire.Drain; t++ {
		all = append(all, t)
	}
	for t := wire.Credit; t <= wire.ServerCount; t++ {
		all = append(all, t)
	}
	return all
}

// sendable lists the plain types that are sent on a segment. COMPAT 1.6.
func sendable(s Segment) []wire.PacketType {
	switch s {
	case ToAgent:
		return []wire.PacketType{wire.DialRequest, wire.CloseRequest, wire.Data, wire.DialClose}
	case FromAgent:
		return []wire.PacketType{wire.DialResponse, wire.CloseResponse, wire.Data, wire.Drain}
	case ToClient:
		return []wire.PacketType{wire.DialResponse, wire.CloseResponse, wire.Data, wire.DialClose}
	}
	return []wire.PacketType{wire.DialRequest, wire.CloseRequest, wire.Data, wire.DialClose}
}
