// Package flow says how much may wait, and what happens when it is full: a
// queue bounded by bytes, a byte budget for the whole process, and the
// arithmetic of the credit that one direction of a tunnel grants its peer.
//
// The pieces know nothing of packets or streams. Who grants credit charges the
// budget for it (Window does), because credit once granted cannot be taken
// back: all of it may arrive, and must find room.
package flow
