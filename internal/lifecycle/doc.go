// Package lifecycle starts the parts of a process in order and stops them in
// reverse order under a deadline, and turns signals into contexts.
package lifecycle
