// Package routing holds tests of routing with real processes: a server, and three
// agents in three network namespaces, of which each reaches its own subnet only.
//
// The tests run in a network namespace of their own, which the package's TestMain
// makes and in which they make the others. So they never touch the machine's
// networking, whatever becomes of them. Where that is not allowed they say so and
// run on loopback, where every agent reaches everything: then the tests check
// which agent was asked, and not that no other one could have answered.
package routing
