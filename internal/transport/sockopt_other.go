//go:build !linux

package transport

import "net"

// setNotSentLimit does nothing where the option is not known.
func setNotSentLimit(*net.TCPConn, int) error { return nil }
