package tunneltest

import (
	"net"
	"time"
)

// Mode is what a listener does with those who dial it.
type Mode int

const (
	// Accepting is the normal mode.
	Accepting Mode = iota
	// Refusing answers dials with ECONNREFUSED.
	Refusing
	// Silent lets dials succeed, and bytes be sent into the buffer, but Accept
	// returns nothing: a process that is stopped. They are accepted later.
	Silent
)

// Listener is a net.Listener on a Network.
type Listener struct {
	net  *Network
	name string

	// Guarded by net.mu.
	mode    Mode
	backlog []*Conn
	closed  bool
	restart *time.Timer
}

// Accept waits for the next connection, a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		l.net.mu.Lock()
		switch {
		case l.closed:
			l.net.mu.Unlock()
			return nil, &net.OpError{Op: "accept", Net: "mem", Addr: Addr(l.name), Err: net.ErrClosed}
		case len(l.backlog) > 0 && l.mode != Silent:
			c := l.backlog[0]
			l.backlog = l.backlog[1:]
			l.net.mu.Unlock()
			return c, nil
		}
		changed := l.net.changed.wait()
		l.net.mu.Unlock()
		<-changed
	}
}

// Close ends the listener: the name is free again, dials are refused, and
// connections that were not accepted are reset. Accepted ones go on.
func (l *Listener) Close() error {
	l.net.mu.Lock()
	if l.closed {
		l.net.mu.Unlock()
		return net.ErrClosed
	}
	l.closed = true
	l.net.listeners[l.name] = nil
	if l.restart != nil {
		l.restart.Stop()
	}
	waiting := l.backlog
	l.backlog = nil
	l.net.changed.wake()
	l.net.mu.Unlock()
	for _, c := range waiting {
		c.Reset()
	}
	return nil
}

// Addr is the listener's name.
func (l *Listener) Addr() net.Addr { return Addr(l.name) }

// SetMode changes what happens to those who dial from now on.
func (l *Listener) SetMode(m Mode) {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	l.mode = m
	l.net.changed.wake()
}

// Cut breaks every connection that came through this listener.
func (l *Listener) Cut() { l.net.cut(func(p *pair) bool { return p.listener == l }) }

// Restart cuts every connection, refuses dials for a while and then accepts
// again: a crash and a restart of the process behind it, as others see it.
func (l *Listener) Restart(refuse time.Duration) {
	l.SetMode(Refusing)
	l.Cut()
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	l.backlog = nil
	if l.restart != nil {
		l.restart.Stop()
	}
	if !l.closed {
		l.restart = time.AfterFunc(refuse, func() { l.SetMode(Accepting) })
	}
}
