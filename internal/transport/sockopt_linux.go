package transport

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// setNotSentLimit sets TCP_NOTSENT_LOWAT to n bytes; n < 0 leaves it.
func setNotSentLimit(c *net.TCPConn, n int) error {
	if n < 0 {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var opt error
	err = raw.Control(func(fd uintptr) {
		opt = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, n)
	})
	if err == nil {
		err = opt
	}
	if err != nil {
		return fmt.Errorf("set TCP_NOTSENT_LOWAT: %w", err)
	}
	return nil
}
