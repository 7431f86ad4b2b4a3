package routing

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/client"
)

// dialer opens tunnels.
type dialer func(ctx context.Context, address string) (net.Conn, error)

// grpcDialer uses one gRPC connection to the server for all tunnels.
func grpcDialer(t testing.TB, w *world) dialer {
	t.Helper()
	reusable, err := client.NewReusable("unix://"+w.server.Frontend, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reusable.Close() })
	return func(ctx context.Context, address string) (net.Conn, error) {
		return reusable.DialContext(ctx, "tcp", address)
	}
}

// connectDialer uses HTTP CONNECT, a connection for each tunnel.
func connectDialer(w *world) dialer {
	return func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", w.server.Frontend)
		if err != nil {
			return nil, err
		}
		if deadline, ok := ctx.Deadline(); ok {
			conn.SetDeadline(deadline)
		}
		reader := bufio.NewReader(conn)
		if err := connect(conn, reader, address); err != nil {
			conn.Close()
			return nil, err
		}
		conn.SetDeadline(time.Time{})
		return &connectConn{conn.(*net.UnixConn), reader}, nil
	}
}

func connect(conn net.Conn, reader *bufio.Reader, address string) error {
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", address, address); err != nil {
		return err
	}
	answer, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}

// connectConn reads first what came with the answer.
type connectConn struct {
	*net.UnixConn
	reader *bufio.Reader
}

func (c *connectConn) Read(p []byte) (int, error) { return c.reader.Read(p) }

// visit dials and hears who answers. dialed is false if the dial failed.
func (d dialer) visit(address string) (who string, dialed bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	conn, err := d(ctx, address)
	if err != nil {
		return "", false, err
	}
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(hang))
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line), true, err
}
