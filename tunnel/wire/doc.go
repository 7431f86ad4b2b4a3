// Package wire holds the packets of the Konnectivity protocol, the headers and
// identifiers that travel beside them, and their exact bytes.
//
// It has no goroutine and does no I/O. The codec is written by hand over
// protowire, so that importing this package registers no protobuf descriptor:
// two registered messages named Packet in one process panic at start, and the
// public client library brings its own.
//
// Sources: COMPAT section 1 for the plain protocol; PROTOCOL.md for what
// Culvert adds (packet types and fields from 64 on).
package wire
