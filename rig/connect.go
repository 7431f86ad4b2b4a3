package rig

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
)

const maxHead = 4 << 10

// dialConnect is HTTP CONNECT, byte by byte: what follows the head of the answer
// belongs to the tunnel.
func (c *Cluster) dialConnect(ctx context.Context, cfg DialConfig) (medium, error) {
	conn, err := c.net.Dialer(cfg.Client)(ctx, frontendOf(cfg.Server))
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	head, rest, err := request(conn, cfg.Address)
	if !stop() {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	if status := statusOf(head); status != "200" {
		_, _ = io.Copy(io.Discard, conn) // the body, so that closing is no reset
		_ = conn.Close()
		return nil, fmt.Errorf("%s", status) //nolint:err113 // a word for the transcript
	}
	return newPlain(conn, io.MultiReader(bytes.NewReader(rest), conn)), nil
}

// request asks for address and returns the head of the answer and what came with
// it.
func request(conn net.Conn, address string) (head, rest []byte, err error) {
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", address); err != nil {
		return nil, nil, err
	}
	var answer []byte
	buf := make([]byte, maxHead)
	for {
		n, err := conn.Read(buf)
		answer = append(answer, buf[:n]...)
		if before, after, ok := bytes.Cut(answer, []byte("\r\n\r\n")); ok {
			return before, after, nil
		}
		if err != nil {
			return nil, nil, err
		}
		if len(answer) > maxHead {
			return nil, nil, fmt.Errorf("no end of the answer's head in %d bytes", len(answer))
		}
	}
}

// statusOf is the number in a status line.
func statusOf(head []byte) string {
	line, _, _ := strings.Cut(string(head), "\r\n")
	_, rest, _ := strings.Cut(line, " ")
	number, _, _ := strings.Cut(rest, " ")
	return number
}
