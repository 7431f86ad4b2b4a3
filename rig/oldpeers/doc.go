// Package oldpeers holds the tests of what old peers see of us: agents, servers
// and clients that speak the plain protocol only, played packet for packet by
// scripts against a whole server (both frontends) and a whole agent.
//
// sheet_test.go is the table of the sequences of the compatibility sheet (COMPAT
// 1.3 to 1.8 and 2, as changed by 9.2 and 11) with the tests that play each; a
// test holds it to the truth.
//
// Every script against a server runs beside a tunnel that it has nothing to do
// with, on the same agent's link, which must work the same afterwards. And after
// every script nothing may be left: all gauges are 0 again.
package oldpeers
