package frontconnect

import (
	"crypto/tls"
	"net"
	"time"
)

// Listener puts TLS on l, for Serve. A copy of cfg is used, which speaks http/1.1
// only; where cfg chooses another one per client (GetConfigForClient), that one
// must do so itself.
func Listener(l net.Listener, cfg *tls.Config) net.Listener {
	cfg = cfg.Clone()
	cfg.NextProtos = []string{"http/1.1"}
	return tls.NewListener(l, cfg)
}

// keepAlive makes a TCP connection find out within 20 s that its client left
// without a word. DESIGN 4.3. One that cannot still works.
func (s *socket) keepAlive() {
	c, ok := s.raw.(interface {
		SetKeepAliveConfig(net.KeepAliveConfig) error
	})
	if ok {
		_ = c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3})
	}
}
