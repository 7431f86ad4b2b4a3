// Package client dials through a proxy server: DialContext gives a net.Conn
// whose other end is a TCP endpoint that only the server's agents can reach.
//
// A SingleUse tunnel is one gRPC connection for one dial, as kube-apiserver does
// it; a Reusable one carries any number of dials over one gRPC connection, a
// stream each. Both work with every server of the Konnectivity protocol. What a
// server can do beyond it is negotiated: half-close, and the reason of an
// abnormal end.
//
// A connection of this package is a *Conn. It is a whole net.Conn: deadlines,
// addresses, concurrent use. A reader that is slow, or stands still, holds up
// its own endpoint by HTTP/2's flow control, without limit of time and without
// harm to its neighbours.
//
// # Ends
//
// An endpoint that closes in order is io.EOF. Everything else is an *EndError
// with a reason, once the bytes that had arrived are read. Two cases cannot be
// told apart, because the protocol without our extensions shows both alike: with
// an old server the loss of an agent is io.EOF too.
//
// Close returns at once, and what was written before is still delivered, in the
// background. A process that ends right after Close may lose what has not left
// its memory: whoever writes and exits waits with Conn.CloseContext.
//
// # Who does what
//
// Each stream has one goroutine of ours, the reader. What is written is sent by
// the goroutine that writes it while gRPC is certain to take it, else by one
// that lives as long as there is something to send (sender.go says why).
//
// This package writes no log and registers no metric; Options.Observer is told
// what either would need.
package client
