package serverlink

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/net/http/httpproxy"
)

// EnvironmentProxy is a Config.ProxyFor by HTTPS_PROXY and NO_PROXY, or their
// lower-case forms, as they are now.
func EnvironmentProxy() func(*url.URL) (*url.URL, error) {
	return httpproxy.FromEnvironment().ProxyFunc()
}

// proxyFor is the proxy to use for an address, nil for none.
func (c *Connector) proxyFor(address string) (*url.URL, error) {
	if c.cfg.ProxyFor == nil {
		return nil, nil //nolint:nilnil // no proxy and no error
	}
	return c.cfg.ProxyFor(&url.URL{Scheme: "https", Host: address})
}

// dial connects to a target, through a proxy if there is one.
func (c *Connector) dial(ctx context.Context, t Target) (net.Conn, error) {
	proxy, err := c.proxyFor(t.Address)
	if err != nil {
		return nil, fmt.Errorf("proxy for %s: %w", t.Address, err)
	}
	if proxy == nil {
		return c.cfg.Dial(ctx, t.Address)
	}
	conn, err := c.dialProxy(ctx, proxy)
	if err != nil {
		return nil, fmt.Errorf("proxy %s: %w", proxy.Host, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	ahead, err := tunnelThrough(conn, proxy.User, t.Address)
	if !stop() {
		err = errors.Join(ctx.Err(), err)
	}
	switch {
	case err != nil:
		_ = conn.Close()
		return nil, fmt.Errorf("proxy %s: %w", proxy.Host, err)
	case len(ahead) > 0:
		return &aheadConn{Conn: conn, ahead: ahead}, nil
	}
	return conn, nil
}

// aheadConn is a connection of which some bytes were read already.
type aheadConn struct {
	net.Conn
	ahead []byte // owned by the reader
}

// Read implements net.Conn.
func (c *aheadConn) Read(b []byte) (int, error) {
	if len(c.ahead) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.ahead)
	c.ahead = c.ahead[n:]
	return n, nil
}

// dialProxy connects to the proxy itself.
func (c *Connector) dialProxy(ctx context.Context, proxy *url.URL) (net.Conn, error) {
	switch proxy.Scheme {
	case "http":
		return c.cfg.Dial(ctx, withPort(proxy, "80"))
	case "https":
		conn, err := c.cfg.Dial(ctx, withPort(proxy, "443"))
		if err != nil {
			return nil, err
		}
		secure := tls.Client(conn, &tls.Config{ServerName: proxy.Hostname(), MinVersion: tls.VersionTLS12})
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return secure, nil
	}
	return nil, fmt.Errorf("unsupported scheme %q", proxy.Scheme)
}

func withPort(u *url.URL, port string) string {
	if p := u.Port(); p != "" {
		port = p
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// tunnelThrough asks a proxy to connect to address, and returns what came behind
// its answer. The caller sees to it that this ends.
func tunnelThrough(conn net.Conn, user *url.Userinfo, address string) (ahead []byte, err error) {
	req := &http.Request{
		Method: http.MethodConnect,
		URL:    &url.URL{Opaque: address},
		Host:   address,
		Header: http.Header{},
	}
	if user != nil {
		password, _ := user.Password()
		basic := base64.StdEncoding.EncodeToString([]byte(user.Username() + ":" + password))
		req.Header.Set("Proxy-Authorization", "Basic "+basic)
	}
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	br := bufio.NewReaderSize(conn, 4<<10)
	rsp, err := http.ReadResponse(br, req) //nolint:bodyclose // what follows is the tunnel
	if err != nil {
		return nil, err
	}
	if rsp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answered CONNECT with %s", rsp.Status)
	}
	return br.Peek(br.Buffered())
}
