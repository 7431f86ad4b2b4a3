package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
)

// The endpoint's protocol: nine bytes, an order and a length; then what the
// order says. One connection carries one order.
const (
	orderEcho   = 'E' // everything comes back until EOF
	orderSink   = 'S' // length bytes are read, then one byte answers
	orderSource = 'D' // length bytes are sent, then FIN
	orderStuck  = 'N' // nothing is read, ever
)

const orderSize = 9

func order(kind byte, length int64) []byte {
	head := make([]byte, orderSize)
	head[0] = kind
	binary.BigEndian.PutUint64(head[1:], uint64(length))
	return head
}

// endpoint serves orders on address until ctx ends.
func endpoint(ctx context.Context, address string) error {
	listener, err := listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return serve(ctx, listener, func(conn net.Conn) {
		defer conn.Close()
		obey(ctx, conn) //nolint:errcheck // a client that left is no news to a load endpoint
	})
}

func obey(ctx context.Context, conn net.Conn) error {
	var head [orderSize]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return err
	}
	length := int64(binary.BigEndian.Uint64(head[1:]))
	switch head[0] {
	case orderEcho:
		_, err := io.CopyBuffer(struct{ io.Writer }{conn}, struct{ io.Reader }{conn}, make([]byte, 32<<10))
		return err
	case orderSink:
		if _, err := io.CopyN(io.Discard, conn, length); err != nil {
			return err
		}
		_, err := conn.Write([]byte{1})
		return err
	case orderSource:
		chunk := make([]byte, 256<<10)
		for length > 0 {
			n, err := conn.Write(chunk[:min(int64(len(chunk)), length)])
			if err != nil {
				return err
			}
			length -= int64(n)
		}
		return nil
	case orderStuck:
		<-ctx.Done()
		return nil
	}
	return fmt.Errorf("unknown order %q", head[0])
}
