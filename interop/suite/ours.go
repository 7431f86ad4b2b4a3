package suite

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/client"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Ours is what only our own client can show, against real processes.
func Ours(t *testing.T) {
	s := newStage(t, "grpc", false, peers{})
	tunnel, err := client.NewReusable(s.target(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer tunnel.Close()
	ctx, cancel := context.WithTimeout(t.Context(), hangLimit)
	defer cancel()
	open := func(line string) *client.Conn {
		s.Helper()
		c, err := s.ask(ctx, tunnel.DialContext, line)
		if err != nil {
			s.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(hangLimit))
		return c.(*client.Conn)
	}
	s.halfClose(ctx, open)
	s.closeAtOnce(ctx, open)
	s.reset(open)
	s.reasons(ctx, tunnel)
	s.lostAgent(ctx, open, tunnel)
}

// halfClose wants the answer of an endpoint that answers only after the end.
func (s *stage) halfClose(ctx context.Context, open func(string) *client.Conn) {
	s.Helper()
	c := open("count\n")
	const n = 1 << 20
	if _, err := io.CopyN(onlyWriter{c}, stream(), n); err != nil {
		s.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		s.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	if want := fmt.Sprint(n); err != nil || string(answer) != want {
		s.Errorf("half-close: the endpoint answered %q, %v; want %s", answer, err, want)
	}
	if err := c.CloseContext(ctx); err != nil {
		s.Errorf("half-close: %v", err)
	}
}

// closeAtOnce writes and closes, to an endpoint that reads slowly at first.
func (s *stage) closeAtOnce(ctx context.Context, open func(string) *client.Conn) {
	s.Helper()
	const n = 4 << 20
	c := open(fmt.Sprintf("slow %d\n", n))
	if _, err := io.CopyN(onlyWriter{c}, stream(), n); err != nil {
		s.Fatal(err)
	}
	if err := c.CloseContext(ctx); err != nil {
		s.Errorf("close at once: %v", err)
	}
	select {
	case got := <-s.endpoint.slow:
		if got != sum(n) {
			s.Error("close at once: the endpoint did not get every byte")
		}
	case <-ctx.Done():
		s.Error("close at once: the endpoint does not see the end")
	}
}

// reset wants the endpoint's reset to be told from its end.
func (s *stage) reset(open func(string) *client.Conn) {
	s.Helper()
	c := open("reset\n")
	defer c.Close()
	_, err := io.ReadAll(c)
	var end *client.EndError
	if !errors.As(err, &end) || end.Reason != wire.ReasonReset || !errors.Is(err, syscall.ECONNRESET) {
		s.Errorf("reset by the endpoint: %v", err)
	}
}

// reasons wants dial errors with the right reason.
func (s *stage) reasons(ctx context.Context, tunnel client.Tunnel) {
	s.Helper()
	for address, want := range map[string]wire.Reason{
		s.endpoint.refused: wire.ReasonRefused,
		"no port":          wire.ReasonBadAddress,
	} {
		_, err := tunnel.DialContext(ctx, "tcp", address)
		var dial *wire.DialError
		if !errors.As(err, &dial) || dial.Reason != want {
			s.Errorf("dial to %s: %v", address, err)
		}
	}
}

// lostAgent kills the agent in the middle of a transfer, and dials without one.
func (s *stage) lostAgent(ctx context.Context, open func(string) *client.Conn, tunnel client.Tunnel) {
	s.Helper()
	c := open(fmt.Sprintf("give %d\n", 1<<30))
	defer c.Close()
	if _, err := io.CopyN(io.Discard, c, 1<<20); err != nil {
		s.Fatal(err)
	}
	s.agent.Kill()
	_, err := io.Copy(io.Discard, struct{ io.Reader }{c})
	var end *client.EndError
	if !errors.As(err, &end) || end.Reason != wire.ReasonLinkLost {
		s.Errorf("agent killed: %v", err)
	}
	_, err = tunnel.DialContext(ctx, "tcp", s.endpoint.talk)
	var dial *wire.DialError
	if !errors.As(err, &dial) || dial.Reason != wire.ReasonNoAgent {
		s.Errorf("dial without an agent: %v", err)
	}
}

// slowly reads n bytes, a little at first, then as fast as it can.
func slowly(r io.Reader, n int64) string {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	const piece, pieces = 10 << 10, 50
	h := sha256.New()
	for range pieces {
		<-tick.C
		io.CopyN(h, r, piece)
	}
	io.CopyN(h, r, n-piece*pieces)
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return fmt.Sprintf("no end: %v", err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// hangUp ends a connection with a reset.
func hangUp(c net.Conn) {
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
}
