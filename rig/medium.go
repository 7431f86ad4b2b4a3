package rig

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/culvert-proxy/culvert/tunnel/client"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// medium is what an end's bytes go through.
type medium interface {
	io.ReadWriter
	CloseWrite() error
	// finish closes in order, and says what became of the rest where that can be
	// known.
	finish() error
	// abort closes at once.
	abort()
	// lost is closed when the medium tells of a reset although nobody reads; nil
	// if it cannot.
	lost() <-chan struct{}
}

// tunnelled is the client library's connection.
type tunnelled struct {
	*client.Conn
	tunnel *client.SingleUse
}

func (t tunnelled) finish() error       { return t.CloseContext(context.Background()) }
func (t tunnelled) abort()              { _ = t.Abort() }
func (tunnelled) lost() <-chan struct{} { return nil }

// plain is a connection on the network: an endpoint's, or that of a client of
// HTTP CONNECT.
type plain struct {
	*tunneltest.Conn
	in    io.Reader // what came behind the head of an answer, then the rest
	reset chan struct{}
}

func newPlain(conn net.Conn, in io.Reader) plain {
	p := plain{conn.(*tunneltest.Conn), in, make(chan struct{})}
	go func() {
		if p.WaitReset(context.Background()) { // ends at the latest when this side closes
			close(p.reset)
		}
	}()
	return p
}

func (p plain) Read(b []byte) (int, error) { return p.in.Read(b) }
func (p plain) finish() error              { _ = p.Close(); return nil }
func (p plain) abort()                     { p.Reset() }
func (p plain) lost() <-chan struct{}      { return p.reset }

// reasonOf is a word for how something ended. Texts are left out: they hold port
// numbers.
func reasonOf(err error) string {
	var (
		end  *client.EndError
		dial *wire.DialError
	)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.As(err, &end):
		return end.Reason.String()
	case errors.As(err, &dial):
		return dial.Reason.String()
	case errors.Is(err, syscall.ECONNRESET):
		return "reset"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	return err.Error()
}
