package frontconnect

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// watcher tells of clients that leave, for all sockets of one frontend, with one
// epoll instance and one goroutine. It sees what a reader cannot while it waits
// for a dial or for a slow endpoint.
//
// A socket leaves the epoll instance when it is closed, and IDs are never used
// again, so an event that was on its way finds nobody.
type watcher struct {
	// Fixed after construction.
	epoll *os.File // in the runtime's poller, so that no thread waits in the kernel
	rc    syscall.RawConn
	tell  func(id uint64, s sign) // must not block
	done  chan struct{}           // closed when the goroutine has ended
}

func newWatcher(tell func(id uint64, s sign)) (*watcher, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watching clients: %w", os.NewSyscallError("epoll_create1", err))
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("watching clients: %w", err)
	}
	w := &watcher{epoll: os.NewFile(uintptr(fd), "epoll"), tell: tell, done: make(chan struct{})}
	w.rc, err = w.epoll.SyscallConn()
	if err != nil {
		_ = w.epoll.Close()
		return nil, fmt.Errorf("watching clients: %w", err)
	}
	go w.run()
	return w, nil
}

// add starts to watch a socket; what has happened already is told as well.
func (w *watcher) add(id uint64, socket syscall.RawConn) error {
	e := unix.EpollEvent{
		Events: unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR | unix.EPOLLET,
		Fd:     int32(id), Pad: int32(id >> 32),
	}
	var inner, ctl error
	err := w.rc.Control(func(epfd uintptr) {
		inner = socket.Control(func(fd uintptr) {
			ctl = os.NewSyscallError("epoll_ctl", unix.EpollCtl(int(epfd), unix.EPOLL_CTL_ADD, int(fd), &e))
		})
	})
	return errors.Join(err, inner, ctl)
}

// close ends the goroutine and waits for it.
func (w *watcher) close() {
	_ = w.epoll.Close()
	<-w.done
}

func (w *watcher) run() {
	defer close(w.done)
	events := make([]unix.EpollEvent, 64)
	_ = w.rc.Read(func(epfd uintptr) bool {
		for {
			n, err := unix.EpollWait(int(epfd), events, 0)
			switch {
			case err == unix.EINTR:
				continue
			case err != nil:
				return true
			case n == 0:
				return false // the runtime's poller waits for more
			}
			for _, e := range events[:n] {
				w.tell(uint64(uint32(e.Fd))|uint64(uint32(e.Pad))<<32, signsOf(e.Events))
			}
		}
	})
}

// signsOf reads epoll's and poll's bits, which are the same.
func signsOf(bits uint32) sign {
	var s sign
	if bits&unix.EPOLLRDHUP != 0 {
		s |= signFIN
	}
	if bits&unix.EPOLLHUP != 0 {
		s |= signHUP
	}
	if bits&unix.EPOLLERR != 0 {
		s |= signFail
	}
	return s
}
