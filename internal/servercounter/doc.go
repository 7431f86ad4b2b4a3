// Package servercounter answers how many servers there are. An agent wants a
// link to each of them, and a server tells its agents the number.
//
// A counter never fails: what goes wrong inside is counted, logged once for each
// change, and answered with the last good value, or a fallback before there was
// one. Counters compose. One that can change by itself takes a callback, so that
// whoever waits need not poll it. The counter of Lease objects is in
// internal/lease, where client-go is.
package servercounter

// ServerCounter tells how many servers there are.
type ServerCounter interface {
	// CountServers returns the number as far as it is known. It is safe for
	// concurrent use, and cheap unless an implementation says otherwise. 0 or
	// less means that it is not known.
	CountServers() int
}

// Static is a fixed number of servers.
type Static int

// CountServers returns the number.
func (s Static) CountServers() int { return int(s) }

// Max returns a counter of the largest number that any of counters has.
func Max(counters ...ServerCounter) ServerCounter { return largest(counters) }

type largest []ServerCounter

func (l largest) CountServers() int {
	n := 0
	for i, c := range l {
		if m := c.CountServers(); i == 0 || m > n {
			n = m
		}
	}
	return n
}

// AtLeast returns a counter that never goes below least. AtLeast(1, c) turns "not
// known" into one server, since somebody must have answered.
func AtLeast(least int, c ServerCounter) ServerCounter { return Max(Static(least), c) }
