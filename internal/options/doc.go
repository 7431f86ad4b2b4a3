// Package options holds what the command lines of both binaries share: errors
// that name their flag, checks of files and ports, the log flags, and the rules
// of parsing (COMPAT section 3.0 as changed by section 11).
package options
