// Package behaviour holds the tests of what must hold for a connection from a
// client to an endpoint: through real processes, one test per item, through each
// way in.
//
// A test takes a stage (a server, an agent, a way in), endpoints that run in the
// test's own process, and does something to them. When it is done the stage
// checks that nothing is left: gauges at 0, sockets and goroutines as before.
//
// Sizes are scaled so that all of it is over in a few minutes; CULVERT_SOAK=1
// gives them in full. Bounds in seconds are limits against hanging: whatever is
// a promise about time is given grace for a busy machine.
package behaviour
