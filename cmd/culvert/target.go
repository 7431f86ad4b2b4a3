package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// target is a server's frontend: a Unix socket, or an address with mutual TLS.
type target struct {
	socket  string
	address string // host:port
	tls     *tls.Config
}

// dialConnect opens a tunnel by HTTP CONNECT. The connection it returns can
// half-close, like the socket or TLS connection it is.
func dialConnect(ctx context.Context, to target, address string) (net.Conn, error) {
	conn, err := to.dial(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	tunnel, err := handshake(conn, address)
	if err != nil {
		conn.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	return tunnel, nil
}

func (to target) dial(ctx context.Context) (net.Conn, error) {
	var plain net.Dialer
	if to.socket != "" {
		return plain.DialContext(ctx, "unix", to.socket)
	}
	secure := tls.Dialer{NetDialer: &plain, Config: to.tls}
	return secure.DialContext(ctx, "tcp", to.address)
}

func handshake(conn net.Conn, address string) (net.Conn, error) {
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", address, address); err != nil {
		return nil, err
	}
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, fmt.Errorf("read the answer to CONNECT: %w", err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("CONNECT %s: %s", address, response.Status)
	}
	half, ok := conn.(halfCloser)
	if !ok {
		return nil, errors.New("the connection cannot half-close")
	}
	return &connectTunnel{halfCloser: half, reader: reader}, nil
}

type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// connectTunnel reads first what came right behind the head.
type connectTunnel struct {
	halfCloser
	reader *bufio.Reader
}

// Read implements net.Conn.
func (t *connectTunnel) Read(p []byte) (int, error) { return t.reader.Read(p) }

// clientTLS loads what a TCP frontend asks of its clients.
func clientTLS(ca, cert, key, address string) (*tls.Config, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("--server=%s: %w", address, err)
	}
	text, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("--ca-cert: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--ca-cert=%s: holds no certificate", ca)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--cert=%s, --key=%s: %w", cert, key, err)
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		ServerName:   strings.Trim(host, "[]"),
		RootCAs:      pool,
		Certificates: []tls.Certificate{pair},
	}, nil
}
