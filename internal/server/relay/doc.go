// Package relay is the middle of the server: tunnels between a frontend and a
// backend, their life from dial to close, and the bytes in between.
//
// It knows neither gRPC nor TLS, Kubernetes or metrics. It declares the small
// interfaces that it needs (Frontend, Outlet, Router, Observer); the rooms
// around it are adapters.
//
// Who runs what. Each tunnel has one goroutine here, which dials, answers the
// client and delivers to it what comes from the endpoint (dial.go, down.go). The
// adapter's reading goroutine feeds the other direction (up.go) and closes
// (close.go). The link's reader calls the packet methods of Peer, which never
// wait, except on a link without credit (packets.go). Timers look after what has
// to end by itself (watch.go).
//
// What a tunnel is doing is its state (state.go); everything that ends one is an
// event, and what a new state asks for is done in one place (move.go).
//
// Locks, in the order in which they may nest: Peer.mu, Tunnel.mu, then those
// inside of flow's and the link's types. Relay.mu nests with none. No lock is
// held while a Frontend or the Observer is called.
package relay
