// Package frontconnect is the HTTP CONNECT frontend: it takes a client's socket
// from the request head to the last byte and adapts it to relay's ports.
//
// net/http reads the head and answers what is not CONNECT. Then the socket is
// taken from it, so that its goroutine, buffers and request objects are freed:
// a tunnel holds two goroutines, the session's reader here and the tunnel's own
// in relay, which calls the session as a relay.Frontend.
//
// What the medium can say about a client that leaves differs, and the session
// knows it (DESIGN 4.3): a Unix socket tells a full hang-up from a half-close; a
// TCP socket does not; TLS says half with close_notify and full with FIN.
package frontconnect
