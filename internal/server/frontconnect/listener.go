package frontconnect

import (
	"crypto/tls"
	"net"
	"time"
)

// keepAlive finds a client that left without a word within 20 s. DESIGN 4.3.
func keepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3}
}

// Listener prepares l for Serve: keepalive on its TCP connections, and TLS if cfg
// is not nil. A copy of cfg is used, which speaks http/1.1 only; where cfg chooses
// another one per client (GetConfigForClient), that one must do so itself.
func Listener(l net.Listener, cfg *tls.Config) net.Listener {
	if cfg != nil {
		cfg = cfg.Clone()
		cfg.NextProtos = []string{"http/1.1"}
	}
	return &listener{Listener: l, tls: cfg}
}

type listener struct {
	net.Listener
	tls *tls.Config
}

func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if c, ok := conn.(interface {
		SetKeepAliveConfig(net.KeepAliveConfig) error
	}); ok {
		_ = c.SetKeepAliveConfig(keepAlive()) // a connection without it still works
	}
	if l.tls != nil {
		return tls.Server(conn, l.tls), nil
	}
	return conn, nil
}
