// Package frontgrpc is the gRPC frontend: the service /ProxyService/Proxy, whose
// streams carry one tunnel each. It turns packets into calls of the relay and
// the relay's calls into packets.
//
// Two goroutines serve a stream: gRPC's handler, which reads and applies one rule
// per packet type (rules.go), and the tunnel's own, which sends (frontend.go).
// The reader sends too where no tunnel does: before there is one, and when a
// chunk that the client lost is sent again (firstbytes.go).
//
// A blocked RecvMsg or SendMsg is freed by cancelling the stream's context, which
// link.Tap makes possible. A stream that is finished gets its status by the
// tunnel's goroutine, which frees the reader in the same way.
package frontgrpc
