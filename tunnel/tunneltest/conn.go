package tunneltest

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Conn is one side of a connection on a Network. It has the methods of a
// *net.TCPConn that tunnels use. Safe for concurrent use.
type Conn struct {
	// Fixed after construction.
	pair          *pair
	side          int
	local, remote Addr

	readBy, writeBy deadline

	linger0 bool // guarded by pair.mu
}

func newConn(p *pair, side int, local, remote Addr) *Conn {
	return &Conn{pair: p, side: side, local: local, remote: remote}
}

// Read returns what has arrived; it waits for the first byte.
func (c *Conn) Read(b []byte) (int, error) {
	for {
		n, changed, wait, err := c.tryRead(b)
		switch {
		case errors.Is(err, io.EOF):
			return 0, io.EOF
		case err != nil:
			return 0, c.opError("read", err)
		case n > 0 || len(b) == 0:
			return n, nil
		}
		sleep(changed, &c.readBy, wait)
	}
}

// tryRead reads without waiting. If nothing has arrived it returns what tells
// of a change.
func (c *Conn) tryRead(b []byte) (n int, changed <-chan struct{}, wait time.Duration, err error) {
	c.pair.mu.Lock()
	defer c.pair.mu.Unlock()
	if err := c.usable(&c.readBy); err != nil {
		return 0, nil, 0, err
	}
	n, wait, err = c.pair.read(c.side, b)
	if n == 0 && err == nil {
		changed = c.pair.changed.wait()
	}
	return n, changed, wait, err
}

// sleep waits for a change, for a deadline to pass or be moved, or for wait to
// pass if that is not 0.
func sleep(changed <-chan struct{}, by *deadline, wait time.Duration) {
	late := by.wait()
	if by.passed() {
		return
	}
	var arrival <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		arrival = timer.C
	}
	select {
	case <-changed:
	case <-late:
	case <-arrival:
	}
}

// Write returns when the whole of b is in the buffer.
func (c *Conn) Write(b []byte) (int, error) {
	total := 0
	for {
		n, changed, err := c.tryWrite(b[total:])
		total += n
		if err != nil {
			return total, c.opError("write", err)
		}
		if total == len(b) {
			return total, nil
		}
		if n == 0 {
			sleep(changed, &c.writeBy, 0)
		}
	}
}

// tryWrite is tryRead's counterpart.
func (c *Conn) tryWrite(b []byte) (n int, changed <-chan struct{}, err error) {
	c.pair.mu.Lock()
	defer c.pair.mu.Unlock()
	if err := c.usable(&c.writeBy); err != nil {
		return 0, nil, err
	}
	n, err = c.pair.write(c.side, b)
	if n == 0 && err == nil {
		changed = c.pair.changed.wait()
	}
	return n, changed, err
}

// usable is why this side can do nothing. pair.mu is held.
func (c *Conn) usable(d *deadline) error {
	if c.pair.closed[c.side] {
		return net.ErrClosed
	}
	if d.passed() {
		return os.ErrDeadlineExceeded
	}
	return nil
}

func (c *Conn) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "mem", Source: c.local, Addr: c.remote, Err: err}
}

// CloseWrite sends the end of the data; reading goes on.
func (c *Conn) CloseWrite() error {
	c.pair.mu.Lock()
	defer c.pair.mu.Unlock()
	if c.pair.closed[c.side] {
		return c.opError("close", net.ErrClosed)
	}
	c.pair.finish(c.side)
	return nil
}

// Close ends this side. What was sent arrives, then the end, unless something
// that had arrived was not read or SetLinger(0) was called: then it is Reset.
func (c *Conn) Close() error { return c.close(false) }

// Reset ends this side with a reset: what the other side has not read is lost,
// and its calls return ECONNRESET.
func (c *Conn) Reset() { _ = c.close(true) }

func (c *Conn) close(abort bool) error {
	c.pair.mu.Lock()
	if c.pair.closed[c.side] {
		c.pair.mu.Unlock()
		return c.opError("close", net.ErrClosed)
	}
	over := c.pair.close(c.side, abort || c.linger0)
	c.pair.mu.Unlock()
	if over {
		c.pair.net.forget(c.pair)
	}
	return nil
}

// SetLinger makes Close a Reset for 0 seconds; other values change nothing.
func (c *Conn) SetLinger(seconds int) error {
	c.pair.mu.Lock()
	defer c.pair.mu.Unlock()
	c.linger0 = seconds == 0
	return nil
}

// Shape sets how what this side sends travels from now on.
func (c *Conn) Shape(s Shape) { c.pair.reshape(c.side, s) }

// Unread is the number of bytes this side was sent and has not read.
func (c *Conn) Unread() int {
	c.pair.mu.Lock()
	defer c.pair.mu.Unlock()
	return c.pair.dirs[1-c.side].size
}

// LocalAddr is an Addr.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr is an Addr.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	c.readBy.set(t)
	c.writeBy.set(t)
	return nil
}

// SetReadDeadline makes present and later reads fail with
// os.ErrDeadlineExceeded from t on; the zero time means never.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.readBy.set(t)
	return nil
}

// SetWriteDeadline is the same for writes.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.writeBy.set(t)
	return nil
}

// deadline is a time from which a call fails, and which can be moved while the
// call waits.
type deadline struct {
	mu      sync.Mutex
	at      time.Time
	timer   *time.Timer
	changed broadcast
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = t
	d.changed.wake()
	if wait := time.Until(t); !t.IsZero() && wait > 0 {
		d.timer = time.AfterFunc(wait, d.fire)
	}
}

func (d *deadline) fire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed.wake()
}

// wait returns a channel that is closed when the deadline passes or is moved.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed.wait()
}

func (d *deadline) passed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.at.IsZero() && !time.Now().Before(d.at)
}

// WaitReset waits until this side is told of a reset, without reading what may
// have arrived before it, and returns true; false if ctx ends first or this side
// is closed.
func (c *Conn) WaitReset(ctx context.Context) bool {
	for {
		c.pair.mu.Lock()
		reset, closed := c.pair.reset(c.side), c.pair.closed[c.side]
		changed := c.pair.changed.wait()
		c.pair.mu.Unlock()
		if reset || closed {
			return reset && !closed
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}
