package endpoint

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// tcpSocket reads and writes a TCP socket without a buffer of its own: it waits
// for the kernel first and takes memory then.
type tcpSocket struct {
	// Fixed after construction.
	conn *net.TCPConn
	raw  syscall.RawConn
	pool *chunks
	// The functions given to raw, made once so that a call allocates nothing.
	readReady  func(fd uintptr) bool
	writeReady func(fd uintptr) bool
	onTry      func(fd uintptr)

	// Owned by the reader.
	want    int // buffers that the next read fills
	in      wire.Payload
	readErr error

	// Owned by the writer.
	out      [][]byte
	written  int
	writeErr error

	// Owned by the caller of tryWrite.
	try      [][]byte
	tryCount int
}

// newTCPSocket returns nil if the connection offers no descriptor.
func newTCPSocket(c *net.TCPConn, pool *chunks) socket {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	s := &tcpSocket{conn: c, raw: raw, pool: pool, want: 1}
	s.readReady = s.readOnce
	s.writeReady = s.writeOnce
	s.onTry = s.tryOnce
	return s
}

func (s *tcpSocket) read() (wire.Payload, error) {
	s.readErr = nil
	if err := s.raw.Read(s.readReady); err != nil {
		return wire.Payload{}, err
	}
	p := s.in
	s.in = wire.Payload{}
	return p, s.readErr
}

// readOnce reads what is there; false means that nothing was. While reads fill
// their buffers the next one takes more of them.
func (s *tcpSocket) readOnce(fd uintptr) bool {
	var array [maxChunks]*[]byte
	bufs := array[:s.want]
	for i := range bufs {
		bufs[i] = s.pool.Get(chunkSize)
	}
	n, err := readv(int(fd), bufs)
	switch {
	case err == nil && n > 0:
		full := n == len(bufs)*chunkSize
		s.in = s.pool.payload(bufs, n)
		s.want = nextWant(s.want, full)
		return true
	case err == nil:
		err = io.EOF
	case errors.Is(err, unix.EAGAIN):
		s.pool.putAll(bufs)
		s.want = 1
		return false
	default:
		err = os.NewSyscallError("read", err)
	}
	s.pool.putAll(bufs)
	s.readErr = err
	return true
}

func nextWant(want int, full bool) int {
	if !full {
		return 1
	}
	return min(2*want, maxChunks)
}

func readv(fd int, bufs []*[]byte) (int, error) {
	for {
		var n int
		var err error
		if len(bufs) == 1 {
			n, err = unix.Read(fd, *bufs[0])
		} else {
			var array [maxChunks][]byte
			for i, b := range bufs {
				array[i] = *b
			}
			n, err = unix.Readv(fd, array[:len(bufs)])
		}
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

func (s *tcpSocket) write(v [][]byte) (int, error) {
	s.out, s.written, s.writeErr = v, 0, nil
	err := s.raw.Write(s.writeReady)
	s.out = nil
	if err != nil {
		return 0, err
	}
	return s.written, s.writeErr
}

func (s *tcpSocket) writeOnce(fd uintptr) bool {
	n, err := writev(int(fd), s.out)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return false
	case err != nil:
		s.writeErr = os.NewSyscallError("write", err)
	default:
		s.written = n
	}
	return true
}

// tryWrite goes round the lock that a waiting write holds, which is why its
// caller must know that there is none.
func (s *tcpSocket) tryWrite(v [][]byte) int {
	s.try, s.tryCount = v, 0
	_ = s.raw.Control(s.onTry) // closed: nothing was written
	s.try = nil
	return s.tryCount
}

func (s *tcpSocket) tryOnce(fd uintptr) {
	if n, err := writev(int(fd), s.try); err == nil {
		s.tryCount = n
	}
}

func writev(fd int, v [][]byte) (int, error) {
	for {
		var n int
		var err error
		if len(v) == 1 {
			n, err = unix.Write(fd, v[0])
		} else {
			n, err = unix.Writev(fd, v)
		}
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

func (s *tcpSocket) closeWrite() error { return s.conn.CloseWrite() }

// tcpClosed is the kernel's name for a connection that is over (TCP_CLOSE). A
// FIN from the endpoint alone leaves another state.
const tcpClosed = 7

func (s *tcpSocket) wasReset() bool {
	reset := false
	_ = s.raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		reset = err == nil && info.State == tcpClosed
	})
	return reset
}

func (s *tcpSocket) unacked() int64 {
	var n int
	_ = s.raw.Control(func(fd uintptr) {
		n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) // n is 0 on error
	})
	return int64(n)
}

func (s *tcpSocket) setReadDeadline(t time.Time)  { _ = s.conn.SetReadDeadline(t) }
func (s *tcpSocket) setWriteDeadline(t time.Time) { _ = s.conn.SetWriteDeadline(t) }
func (s *tcpSocket) close()                       { _ = s.conn.Close() }

func (s *tcpSocket) reset() {
	_ = s.conn.SetLinger(0)
	_ = s.conn.Close()
}
