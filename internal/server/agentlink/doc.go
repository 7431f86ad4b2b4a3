// Package agentlink takes in the links of agents: the gRPC service
// /AgentService/Connect. It checks who connects, answers with the server's
// headers, decides when a link becomes a backend (DESIGN 4.5), and hands every
// packet to the relay.
//
// Per link there are two goroutines: the reader, which is gRPC's handler, and
// the writer, which it starts and waits for. Whatever ends a link, the reader
// ends it: it takes the link out of the routing first, then tells the relay, so
// that no dial is given to a link whose loss the relay already knows.
package agentlink
