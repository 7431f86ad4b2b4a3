package client

import (
	"net"
	"time"
)

// deadline is a time after which one direction of a connection does not wait.
// Guarded by the connection's mu. Whoever waits asks passed on each wake-up, so
// a timer that fires late, for a deadline that was replaced, does no harm.
type deadline struct {
	at    time.Time // zero for none; has a monotonic reading
	timer *time.Timer
}

// set replaces the deadline; wake is called, on another goroutine, when it
// passes.
func (d *deadline) set(t time.Time, wake func()) {
	d.stop()
	if t.IsZero() {
		return
	}
	wait := time.Until(t)
	d.at = time.Now().Add(wait)
	if wait > 0 {
		d.timer = time.AfterFunc(wait, wake)
	}
}

// passed reports whether there is a deadline and it lies in the past.
func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// stop removes the deadline.
func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
	}
	*d = deadline{}
}

// SetDeadline implements net.Conn: SetReadDeadline and SetWriteDeadline.
func (c *Conn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.setDeadlines(t, true, true)
}

// SetReadDeadline implements net.Conn: a Read that waits for longer, now or
// later, returns os.ErrDeadlineExceeded. The connection stays usable.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.setDeadlines(t, true, false)
}

// SetWriteDeadline implements net.Conn: a Write that waits for longer, now or
// later, returns os.ErrDeadlineExceeded and how many bytes it had accepted,
// which are still delivered. The connection stays usable.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.setDeadlines(t, false, true)
}

// setDeadlines sets one or both. mu is held.
func (c *Conn) setDeadlines(t time.Time, read, write bool) error {
	if c.closed {
		return c.opError("set", net.ErrClosed)
	}
	if read {
		c.readDeadline.set(t, c.wakeAll)
	}
	if write {
		c.writeDeadline.set(t, c.wakeAll)
	}
	c.wake()
	return nil
}

// wakeAll is wake on a timer's goroutine.
func (c *Conn) wakeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wake()
}
