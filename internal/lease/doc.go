// Package lease holds everything about the Lease objects by which servers make
// themselves known: when one is valid, how a server publishes and releases its
// own and collects those of the dead, and how agents and servers count them.
//
// A lease is valid by the clocks of two machines if its renewTime plus its
// duration is not over yet; that is wrong whenever the clocks differ. So it is
// also valid while its renewTime was seen to change within its duration, measured
// on the local monotonic clock alone. One that is expired by both is counted out
// only after a LIST has confirmed it, and deleted only by who has watched it stand
// still for its whole duration.
package lease
