package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
)

// The yardstick: a bare two-process byte copier. The near process listens on a
// Unix socket and dials the far one over mutual TLS for each connection; the far
// one dials the endpoint over TCP. Each hop is io.Copy both ways, with
// half-close, and nothing else.

// relayNear runs until ctx ends.
func relayNear(ctx context.Context, socket, far string, conf *tls.Config) error {
	listener, err := listen(ctx, "unix", socket)
	if err != nil {
		return err
	}
	dialer := tls.Dialer{Config: conf}
	return serve(ctx, listener, func(near net.Conn) {
		conn, err := dialer.DialContext(ctx, "tcp", far)
		if err != nil {
			near.Close()
			return
		}
		join(near, conn)
	})
}

// relayFar runs until ctx ends.
func relayFar(ctx context.Context, address, endpoint string, conf *tls.Config) error {
	listener, err := listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	var dialer net.Dialer
	return serve(ctx, tls.NewListener(listener, conf), func(near net.Conn) {
		conn, err := dialer.DialContext(ctx, "tcp", endpoint)
		if err != nil {
			near.Close()
			return
		}
		join(near, conn)
	})
}

func listen(ctx context.Context, network, address string) (net.Listener, error) {
	var config net.ListenConfig
	return config.Listen(ctx, network, address)
}

// serve accepts until ctx ends and runs handle for each connection.
func serve(ctx context.Context, listener net.Listener, handle func(net.Conn)) error {
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	for {
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		go handle(conn)
	}
}

type closeWriter interface{ CloseWrite() error }

// join copies both ways until both ended.
func join(a, b net.Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		pour(a, b)
	}()
	pour(b, a)
	<-done
	a.Close()
	b.Close()
}

func pour(dst, src net.Conn) {
	if _, err := io.Copy(dst, src); err != nil {
		dst.Close()
		src.Close()
		return
	}
	if half, ok := dst.(closeWriter); ok {
		half.CloseWrite() //nolint:errcheck // the other side is gone then, which the other copy finds
	}
}

// mutualTLS loads a pair and a CA for either side.
func mutualTLS(cert, key, ca string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate", ca)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{pair},
		RootCAs:      pool,
		ClientCAs:    pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ServerName:   "127.0.0.1",
		MinVersion:   tls.VersionTLS13,
	}, nil
}
