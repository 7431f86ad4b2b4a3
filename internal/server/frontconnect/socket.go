package frontconnect

import (
	"crypto/tls"
	"net"
	"syscall"
	"time"
)

// medium is what carries the client's bytes; how a client leaves, and how it is
// told the end, depends on it.
type medium uint8

const (
	overUnix  medium = iota // a full hang-up is told from a half-close at once
	overTCP                 // FIN may be either; a reset says abnormal
	overTLS                 // close_notify alone is half, FIN is full
	overOther               // a stream in memory: only EOF can be seen
)

// socket is the client's connection with what its medium can do.
type socket struct {
	conn   net.Conn        // what the bytes go through
	raw    net.Conn        // beneath TLS; else conn itself
	rc     syscall.RawConn // of raw; nil if it is no socket of the kernel
	medium medium
}

type halfCloser interface{ CloseWrite() error }

func newSocket(conn net.Conn) socket {
	s := socket{conn: conn, raw: conn, medium: overOther}
	if t, ok := conn.(*tls.Conn); ok {
		s.raw, s.medium = t.NetConn(), overTLS
	}
	sc, ok := s.raw.(syscall.Conn)
	if !ok {
		return s
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return s
	}
	s.rc = rc
	if s.medium == overTLS {
		return s
	}
	switch conn.LocalAddr().Network() {
	case "unix":
		s.medium = overUnix
	case "tcp":
		s.medium = overTCP
	}
	return s
}

// canHalfClose says whether the client can tell a half-close and be told one.
func (s *socket) canHalfClose() bool {
	_, ok := s.conn.(halfCloser)
	return ok
}

// halfClose tells the client that no more comes, and leaves the other direction.
func (s *socket) halfClose() error {
	if c, ok := s.conn.(halfCloser); ok {
		return c.CloseWrite()
	}
	return nil
}

// endOutput shows the client the end behind all that was written. An abnormal
// end over TLS is a FIN without close_notify; over plain TCP it is the reset that
// close sends, once what was written has left.
func (s *socket) endOutput(abnormal bool) {
	switch {
	case s.medium == overTLS:
		if !abnormal {
			_ = s.halfClose() // a client that is gone needs no end
		}
		if c, ok := s.raw.(halfCloser); ok {
			_ = c.CloseWrite()
		}
	case !abnormal:
		_ = s.halfClose()
	}
}

// close frees the socket. TLS says nothing more here: endOutput has said it.
func (s *socket) close(abnormal bool) {
	if abnormal && s.medium == overTCP {
		if c, ok := s.raw.(interface{ SetLinger(sec int) error }); ok {
			_ = c.SetLinger(0)
		}
	}
	_ = s.raw.Close()
}

// interruptWrites makes writes fail, the blocked one too.
func (s *socket) interruptWrites() { _ = s.raw.SetWriteDeadline(time.Unix(1, 0)) }
