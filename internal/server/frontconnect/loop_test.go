package frontconnect

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/culvert-proxy/culvert/internal/server/relay"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// loopRelay plays relay with real endpoints: each tunnel is a TCP connection that
// it dials itself.
type loopRelay struct {
	mu      sync.Mutex
	tunnels int // tunnels that are not over
}

func (r *loopRelay) newDialID() wire.DialID { return 1 }

func (r *loopRelay) count(d int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tunnels += d
	return r.tunnels
}

func (r *loopRelay) open(ctx context.Context, req relay.Request, f relay.Frontend) tunnel {
	ctx, cancel := context.WithCancel(ctx)
	t := &loopTunnel{cancel: cancel, answered: make(chan struct{})}
	r.count(+1)
	go func() {
		defer r.count(-1)
		t.run(ctx, req, f)
	}()
	return t
}

type loopTunnel struct {
	cancel   context.CancelFunc
	answered chan struct{}

	mu   sync.Mutex
	conn *net.TCPConn // nil until established
	err  error
	gone bool // aborted, or nothing is wanted any more
}

func (t *loopTunnel) run(ctx context.Context, req relay.Request, f relay.Frontend) {
	defer t.cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", req.Address)
	t.mu.Lock()
	if err == nil && t.gone {
		c.Close()
		err = errors.New("aborted")
	}
	if err != nil {
		t.err = err
		t.mu.Unlock()
		close(t.answered)
		f.Failed(&wire.DialError{Reason: wire.ReasonRefused, Err: err})
		return
	}
	conn := c.(*net.TCPConn)
	t.conn = conn
	t.mu.Unlock()
	defer conn.Close()
	err = f.Established(1)
	close(t.answered)
	end := relay.End{}
	buf := make([]byte, 32<<10)
	for err == nil {
		var n int
		n, err = conn.Read(buf)
		if n > 0 {
			if w := f.Write(wire.CopyPayload(buf[:n])); w != nil {
				err = w
			}
		}
	}
	if !errors.Is(err, io.EOF) {
		end.Reason = wire.ReasonReset
	}
	f.Close(end)
}

func (t *loopTunnel) get() *net.TCPConn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.conn
}

func (t *loopTunnel) WaitEstablished() error {
	<-t.answered
	return t.err
}

func (t *loopTunnel) Established() bool { return t.get() != nil }

func (t *loopTunnel) Write(p wire.Payload) error {
	defer p.Free()
	_, err := t.get().Write(p.Bytes())
	return err
}

func (t *loopTunnel) CloseWrite() {
	if c := t.get(); c != nil {
		c.CloseWrite()
	}
}

func (t *loopTunnel) HangUp() {}

func (t *loopTunnel) Close() {
	if c := t.get(); c != nil {
		c.CloseWrite()
		c.CloseRead() // unblocks run
	}
}

func (t *loopTunnel) Abort(wire.Reason, string) {
	t.cancel()
	t.mu.Lock()
	t.gone = true
	c := t.conn
	t.mu.Unlock()
	if c != nil {
		c.SetLinger(0)
		c.Close()
	}
}

// endpoint accepts TCP connections and gives each to serve in a goroutine. At the
// end it waits for all of them.
func endpoint(t *testing.T, serve func(c *net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				serve(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}
