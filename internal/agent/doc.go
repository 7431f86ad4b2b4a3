// Package agent assembles the proxy-agent: links to the servers, the endpoints
// behind them, and what an operator sees. It knows the rooms below it; none of
// them knows it.
package agent
