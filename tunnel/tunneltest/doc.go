// Package tunneltest holds what tests of tunnels need: an in-memory network
// that can stall, slow down and break, and scripted peers that speak packets.
//
// All of it works inside a testing/synctest bubble, gRPC included, as long as
// the Network was made inside the bubble: nothing is polled, and time is only
// ever waited for.
//
// A Network carries connections between names. Its connections behave like TCP
// on its worst day: they are byte-bounded, can be half-closed, and a reset (also
// the one that comes of closing a connection with unread data) destroys whatever
// the other side has not read yet.
//
// A Peer is one end of a gRPC stream of packets, driven line by line by a test:
// an agent or a client against a real server (Connect, Proxy), or a server
// against a real agent or client (Serve).
package tunneltest
