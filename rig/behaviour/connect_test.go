package behaviour

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"
)

// established is the answer to a CONNECT that succeeded, all 39 bytes of it.
const established = "HTTP/1.1 200 Connection Established\r\n\r\n"

// connectRequest is a CONNECT exactly as kube-apiserver writes it.
func connectRequest(address string) string {
	return "CONNECT " + address + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
}

// statusError is a CONNECT that was answered with something else than 200.
type statusError struct {
	Line string // the status line
	Rest []byte // headers and what was read of the body
}

func (e *statusError) Error() string { return "CONNECT answered: " + e.Line }

// connectConn is a client's connection behind the answer to its CONNECT.
type connectConn struct {
	halfConn
	raw   net.Conn // beneath TLS; the same without it
	early []byte   // came in one read with the answer
	first int      // length of the very first read
}

type halfConn interface {
	net.Conn
	CloseWrite() error
}

// Read implements net.Conn.
func (c *connectConn) Read(b []byte) (int, error) {
	if len(c.early) > 0 {
		n := copy(b, c.early)
		c.early = c.early[n:]
		return n, nil
	}
	return c.halfConn.Read(b)
}

// Close ends both directions in order: over TLS with close_notify and FIN. It
// does not wait for a peer that takes nothing.
func (c *connectConn) Close() error { return c.halfConn.Close() }

// Abort resets a TCP connection.
func (c *connectConn) Abort() error {
	tcp, ok := c.raw.(*net.TCPConn)
	if !ok {
		return errNoAbort
	}
	if err := tcp.SetLinger(0); err != nil {
		return err
	}
	return tcp.Close()
}

// reach connects to the frontend, and does no more.
func (f *front) reach(ctx context.Context) (halfConn, net.Conn, error) {
	network := "unix"
	if f.tls != nil {
		network = "tcp"
	}
	raw, err := dialBusy(ctx, network, f.address)
	if err != nil {
		return nil, nil, err
	}
	if f.tls == nil {
		return raw.(*net.UnixConn), raw, nil
	}
	conn := strictTLS(raw, f.tls)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, nil, fmt.Errorf("handshake: %w", err)
	}
	return conn, raw, nil
}

// dialBusy dials; a Unix socket whose backlog is full just now is tried again, as
// the kernel makes a blocking connect wait for it.
func dialBusy(ctx context.Context, network, address string) (net.Conn, error) {
	for {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), syscall.EAGAIN.Error()) {
			return conn, err
		}
		after(time.Millisecond)
	}
}

// dialConnect does what kube-apiserver does, byte for byte.
func (f *front) dialConnect(ctx context.Context, address string) (tunnel, error) {
	conn, raw, err := f.reach(ctx)
	if err != nil {
		return nil, err
	}
	return f.ask(ctx, conn, raw, []byte(connectRequest(address)))
}

// ask sends a request head, and whatever comes with it, and reads the answer.
func (f *front) ask(ctx context.Context, conn halfConn, raw net.Conn, request []byte) (*connectConn, error) {
	stop := context.AfterFunc(ctx, func() { raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	c, err := readAnswer(conn, raw, request)
	if err != nil {
		raw.Close()
		return nil, err
	}
	return c, nil
}

func readAnswer(conn halfConn, raw net.Conn, request []byte) (*connectConn, error) {
	if _, err := conn.Write(request); err != nil {
		return nil, fmt.Errorf("write the request: %w", err)
	}
	c := &connectConn{halfConn: conn, raw: raw}
	answer, chunk := []byte(nil), make([]byte, 4096)
	for {
		n, err := conn.Read(chunk)
		answer = append(answer, chunk[:n]...)
		if c.first == 0 {
			c.first = n
		}
		if head, rest, ok := bytes.Cut(answer, []byte("\r\n\r\n")); ok {
			line, _, _ := strings.Cut(string(head), "\r\n")
			if !strings.HasPrefix(line, "HTTP/1.1 200 ") {
				return nil, &statusError{Line: line, Rest: answer[len(line):]}
			}
			if !bytes.HasPrefix(answer, []byte(established)) {
				return nil, fmt.Errorf("the first bytes are %q and not the 200 line", answer)
			}
			c.early = rest
			return c, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the answer, behind %q: %w", answer, err)
		}
	}
}
