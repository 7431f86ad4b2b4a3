// Package serverlink is one link to one server: how it is connected, what the
// two sides say of each other, and the loop that hands every packet to the
// table of endpoints.
//
// A Connector connects. The result is a Link of which only the handshake is
// known: whether it is kept (Run) or is a duplicate (Drop) is for the fleet to
// decide, and a new server gives it no dials before it is kept. A link that is
// kept has three goroutines: the reader, which is the one that called Run, the
// writer, and one that watches for a GOAWAY.
package serverlink
