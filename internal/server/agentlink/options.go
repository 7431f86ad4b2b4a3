package agentlink

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/culvert-proxy/culvert/tunnel/link"
)

// Sizes of the agents' gRPC server, in bytes.
const (
	// receiveWindow is the HTTP/2 window of a link and of its connection: what an
	// agent may send before this server's reader has taken it. gRPC fixes it when
	// the connection begins, before the headers tell old agents from new ones, so
	// one number serves both.
	//
	// A link with credit needs it large: it must never be the limit, or 1 Gbit/s
	// over 50 ms (6 MiB on the way) would not be reached. It costs nothing there,
	// since the reader does not wait and what it hands on is bounded by credit.
	//
	// On an old agent's link the reader may wait for one stuck tunnel, 10 s at a
	// time, and up to a window's worth of its neighbours' data can pile up in that
	// time. A small window would bound that memory (DESIGN 4.2 says 1 MiB), but
	// also hold every new agent to it. What piles up is given back when the wait
	// ends, and the relay bounds the wait; so the window is large for all.
	receiveWindow = 16 << 20

	// maxMessage is the largest packet that is read. A larger one ends the link
	// with all its tunnels, because gRPC gives the stream up without reading on.
	// Agents send at most 32 KiB at once, old ones 4 KiB, so only a foreign or
	// broken agent gets near; four times the protocol's usual limit leaves it
	// room.
	maxMessage = 16 << 20

	// readBuffer is kept by every connection with TLS for its life. Payloads do
	// not pass through it, except for a first piece.
	readBuffer = 4 << 10
	// writeBuffer is borrowed while there is something to write. What is in it
	// can no longer be overtaken by another tunnel's packet.
	writeBuffer = 32 << 10

	// maxHeaders bounds an agent's metadata; identifier lists can be long.
	maxHeaders = 1 << 20
	// maxStreams bounds the Connect streams of one connection; agents open one.
	maxStreams = 64
)

// lossGrace is for how long a link that is lost may still be read: what its agent
// sent before has arrived, and belongs to the clients. Dials do not come to it any
// more in that time.
const lossGrace = 100 * time.Millisecond

// handshakeTimeout bounds a connection's TLS and HTTP/2 handshakes together.
const handshakeTimeout = 20 * time.Second

// ServerOptions are the gRPC options that links need. The credentials, which the
// caller adds, must give the raw connection in a stream's AuthInfo (method
// RawConn() net.Conn).
func ServerOptions(kp keepalive.ServerParameters, policy keepalive.EnforcementPolicy) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(link.Codec{}),
		grpc.InTapHandle(link.Tap(lossGrace, nil)),
		grpc.KeepaliveParams(kp),
		grpc.KeepaliveEnforcementPolicy(policy),
		grpc.StaticStreamWindowSize(receiveWindow),
		grpc.StaticConnWindowSize(receiveWindow),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.ReadBufferSize(readBuffer),
		grpc.WriteBufferSize(writeBuffer),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.WaitForHandlers(true),
	}
}
