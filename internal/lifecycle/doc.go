// Package lifecycle starts the parts of a process in order, stops them in reverse
// order under a deadline, and turns signals into contexts.
//
// A Group owns nothing but the order; a Part brings its own functions. The first
// part that fails, while starting or later, ends the group with its error.
package lifecycle
