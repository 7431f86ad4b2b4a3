// Package server assembles the proxy-server: listeners, frontends, agent links,
// the relay between them and what an operator sees. It knows the rooms below
// it; none of them knows it.
package server
