package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Defaults of TCPOptions.
const (
	DefaultKeepAlive    = 5 * time.Second
	DefaultNotSentLimit = 64 << 10
)

// TCPOptions are set on every connection of a listener or dialer. The zero value
// means the defaults.
type TCPOptions struct {
	// KeepAlive is the idle time before the first probe, and the time between
	// probes; three unanswered ones end the connection. 0 means 5 s.
	KeepAlive time.Duration
	// NotSentLimit is TCP_NOTSENT_LOWAT in bytes: how much the kernel takes
	// beyond what it can send at once. What waits there can no longer be
	// overtaken, so a bulk transfer would delay its neighbours by it. 0 means
	// 64 KiB, a negative value the system's own limit. Only on Linux.
	NotSentLimit int
}

func (o TCPOptions) keepAlive() net.KeepAliveConfig {
	d := o.KeepAlive
	if d <= 0 {
		d = DefaultKeepAlive
	}
	return net.KeepAliveConfig{Enable: true, Idle: d, Interval: d, Count: 3}
}

func (o TCPOptions) notSentLimit() int {
	if o.NotSentLimit == 0 {
		return DefaultNotSentLimit
	}
	return o.NotSentLimit
}

// tcpListener accepts connections that have its TCPOptions.
type tcpListener struct {
	*net.TCPListener
	notSentLimit int
}

// ListenTCP listens on address, host:port; an empty host means all addresses of
// both families. Accept returns a *net.TCPConn.
func ListenTCP(ctx context.Context, address string, o TCPOptions) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: o.keepAlive()}
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on TCP %q: %w", address, cause(err))
	}
	tl, ok := l.(*net.TCPListener)
	if !ok {
		_ = l.Close()
		return nil, fmt.Errorf("listen on TCP %q: unexpected listener %T", address, l)
	}
	return &tcpListener{TCPListener: tl, notSentLimit: o.notSentLimit()}, nil
}

// Accept returns the next connection, a *net.TCPConn.
func (l *tcpListener) Accept() (net.Conn, error) {
	c, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	// A connection that is gone already fails here; its first use will say so.
	_ = setNotSentLimit(c, l.notSentLimit)
	return c, nil
}

// DialTCP connects to address, host:port, trying all its addresses.
func DialTCP(ctx context.Context, address string, o TCPOptions) (*net.TCPConn, error) {
	d := net.Dialer{KeepAliveConfig: o.keepAlive()}
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	tc, ok := c.(*net.TCPConn)
	if !ok {
		_ = c.Close()
		return nil, fmt.Errorf("dial TCP %q: unexpected connection %T", address, c)
	}
	if err := setNotSentLimit(tc, o.notSentLimit()); err != nil {
		_ = tc.Close()
		return nil, errors.Join(fmt.Errorf("dial TCP %q", address), err)
	}
	return tc, nil
}
