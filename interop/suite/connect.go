package suite

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
)

// maxHead is the longest answer to CONNECT that kube-apiserver reads.
const maxHead = 1 << 20

// kubeConnect dials as kube-apiserver does for HTTPConnect, byte for byte (COMPAT
// 10.2): no ALPN over TLS, a constant Host, status 200 and nothing else, and not
// a byte behind the head.
func kubeConnect(s *stage) dialer {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		conn, err := s.connectProxy(ctx)
		if err != nil {
			return nil, err
		}
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		defer stop()
		if err := askConnect(conn, address); err != nil {
			conn.Close()
			return nil, err
		}
		return conn, nil
	}
}

// connectProxy connects to the frontend itself.
func (s *stage) connectProxy(ctx context.Context) (net.Conn, error) {
	if s.server.TCP {
		return (&tls.Dialer{Config: s.tls()}).DialContext(ctx, "tcp", s.server.Frontend)
	}
	return new(net.Dialer).DialContext(ctx, "unix", s.server.Frontend)
}

// askConnect sends the request and judges the answer.
func askConnect(conn net.Conn, address string) error {
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", address, "127.0.0.1"); err != nil {
		return err
	}
	r := bufio.NewReader(io.LimitReader(conn, maxHead))
	response, err := http.ReadResponse(r, nil)
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("CONNECT %s: %s", address, response.Status)
	}
	if n := r.Buffered(); n > 0 {
		return fmt.Errorf("%d bytes behind the head", n)
	}
	return nil
}
