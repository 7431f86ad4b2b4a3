// Package link makes one gRPC stream between an agent and a server safe to
// share among many tunnels: one reader that never waits for the writer, one
// writer that is fair, and limits on everything that a peer can make grow.
// Servers and agents use the same type.
//
// Who runs what. The owner of the stream calls Run on one goroutine (the
// writer) and Recv in a loop on another (the reader). Everything else may be
// called from anywhere. There is no other goroutine; liveness runs on timers.
//
// What the writer sends. First the outbox: control packets, in the order in
// which they were queued, outside credit, coalesced so that a slow link does
// not make them pile up. Then DATA: surplus round robin by bytes over the
// tunnels that have both data and credit (DESIGN 4.2). Tunnels that have
// nothing to send are never looked at.
//
// What never waits. Send, Grant, AddCredit, Abort and Finish only queue and
// wake the writer, so the reader may call them. Sender.Write waits for room in
// its tunnel's own queue, and on an idle link sends on the caller's goroutine.
package link
