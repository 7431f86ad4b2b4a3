package behaviour

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync/atomic"
)

// strictConn is a TLS client that takes an end without close_notify for what it
// is: crypto/tls calls it EOF if it comes between two records.
type strictConn struct {
	*tls.Conn
	beneath *watchedConn
}

func strictTLS(raw net.Conn, config *tls.Config) *strictConn {
	beneath := &watchedConn{Conn: raw}
	return &strictConn{tls.Client(beneath, config), beneath}
}

// Read implements net.Conn.
func (c *strictConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, io.EOF) && c.beneath.ended.Load() {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// watchedConn knows whether the connection has ended; behind a close_notify TLS
// does not read so far.
type watchedConn struct {
	net.Conn
	ended atomic.Bool
}

// Read implements net.Conn.
func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, io.EOF) {
		c.ended.Store(true)
	}
	return n, err
}
