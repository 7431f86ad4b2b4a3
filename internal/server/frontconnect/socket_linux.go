package frontconnect

import "golang.org/x/sys/unix"

// signs asks the kernel what is known of the client now, without waiting.
func (s *socket) signs() sign {
	if s.rc == nil {
		return 0
	}
	var out sign
	_ = s.rc.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		if n, err := unix.Poll(p, 0); err == nil && n > 0 {
			out = signsOf(uint32(p[0].Revents))
		}
	})
	return out
}

// unsent is the number of bytes that the client's side has not taken yet: over
// TCP what its kernel has not acknowledged, over a Unix socket what the client
// has not read. 0 where that is not known.
func (s *socket) unsent() int {
	if s.rc == nil {
		return 0
	}
	n := 0
	_ = s.rc.Control(func(fd uintptr) {
		if v, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil {
			n = v
		}
	})
	return n
}
