// Package endpoint is the agent's side of tunnels: it dials endpoints, carries
// bytes between their sockets and a link, and closes them so that nothing that
// was accepted is lost.
//
// An Endpoints holds what a process has in common: limits, budget, dialer. Each
// link has a Table, whose methods are the rules for the packets that a server
// may send; the link's reader calls them, and none of them waits (except Data
// behind a server without credit, for a bounded time). A connection has two
// goroutines: up writes what the server sent to the endpoint's socket, down
// reads from it and hands it to the link. What happens to a connection is in
// state.go, as one function.
//
// The package knows no gRPC stream, no certificates and no metrics. It declares
// what it needs of a link (Outlet, Sender) and tells an Observer what happens.
package endpoint
