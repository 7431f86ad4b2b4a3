package serverlink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/culvert-proxy/culvert/internal/agent/endpoint"
	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Connector connects to servers. Safe for concurrent use.
type Connector struct {
	// Fixed after construction.
	cfg   Config
	rooms *endpoint.Endpoints
	obs   link.Observer

	buffers link.Buffers

	// Guarded by mu.
	mu  sync.Mutex
	old map[string]bool // addresses behind which the last server had no credit
}

// New returns a connector whose links use rooms. obs is told of every packet;
// it may be nil.
func New(cfg Config, rooms *endpoint.Endpoints, obs link.Observer) *Connector {
	if cfg.StageTimeout <= 0 {
		cfg.StageTimeout = 10 * time.Second
	}
	return &Connector{cfg: cfg, rooms: rooms, obs: obs, old: make(map[string]bool)}
}

// Connect opens a link to a target and waits for the server's headers. Each
// stage has a limit of its own, so a silent server costs the limit of one; ctx
// ends only the connecting. The link must be given to Run or Drop.
//
// The windows of HTTP/2 are fixed before the server is known, so they are chosen
// by what was behind the address last time. A link to an old server with windows
// for a new one is kept: it only holds more in memory while its reader waits. A
// link to a new server with small windows would be slow for its life, so it is
// given up for another one; that is done before the server has given it a dial.
func (c *Connector) Connect(ctx context.Context, t Target) (*Link, error) {
	l, err := c.connect(ctx, t, c.windowFor(t))
	if err != nil {
		return nil, err
	}
	credit := l.hello.Extensions.Has(wire.ExtCredit)
	c.remember(t, credit)
	if !credit || l.window == newWindow {
		return l, nil
	}
	l.Drop()
	if l, err = c.connect(ctx, t, newWindow); err != nil {
		return nil, err
	}
	c.remember(t, l.hello.Extensions.Has(wire.ExtCredit))
	return l, nil
}

func (c *Connector) windowFor(t Target) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.old[t.Address] || !c.cfg.Extensions.Has(wire.ExtCredit) {
		return oldWindow
	}
	return newWindow
}

func (c *Connector) remember(t Target, credit bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if credit {
		delete(c.old, t.Address)
		return
	}
	if len(c.old) > 1000 { // addresses that are long gone
		clear(c.old)
	}
	c.old[t.Address] = true
}

// connect makes one attempt.
func (c *Connector) connect(ctx context.Context, t Target, window int32) (*Link, error) {
	md, err := c.hello(ctx)
	if err != nil {
		return nil, err
	}
	streamCtx, cancel := context.WithCancelCause(metadata.NewOutgoingContext(context.WithoutCancel(ctx), md))
	a := &attempt{conn: c, target: t, cancel: cancel}
	a.stages.limit = c.cfg.StageTimeout
	a.stages.end = func(err error) {
		cancel(err)
		a.kill()
	}
	stop := context.AfterFunc(ctx, func() { a.stages.end(ctx.Err()) })
	cc, stream, hello, err := a.open(streamCtx, window)
	cause := a.stages.finish()
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = cause // the last stage's time ran out in its last moment
	}
	if err != nil {
		cancel(err)
		a.kill()
		if cc != nil {
			_ = cc.Close()
		}
		if cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("connect to server %s: %w", t.Address, err)
	}
	return newLink(a, cc, stream, hello, window), nil
}

// hello makes the request headers.
func (c *Connector) hello(ctx context.Context) (metadata.MD, error) {
	h := link.AgentHello{AgentID: c.cfg.AgentID, Extensions: c.cfg.Extensions}
	if c.cfg.Identifiers != nil {
		var err error
		if h.Identifiers, err = c.cfg.Identifiers(ctx); err != nil {
			return nil, err
		}
	}
	if c.cfg.Extensions != 0 {
		h.Instance, h.Slot = c.cfg.Instance, slot
	}
	if c.cfg.Token != nil {
		token, err := c.cfg.Token()
		if err != nil {
			return nil, fmt.Errorf("token: %w", err)
		}
		h.Authorization = link.BearerToken(strings.TrimSpace(token))
	}
	return h.Metadata(), nil
}

// open makes the connection and the stream, and reads the server's headers.
func (a *attempt) open(ctx context.Context, window int32) (*grpc.ClientConn, grpc.ClientStream, link.ServerHello, error) {
	var hello link.ServerHello
	a.stages.enter(stageConnect)
	cc, err := grpc.NewClient("passthrough:///"+a.target.Address, a.options(window)...)
	if err != nil {
		return nil, nil, hello, err
	}
	desc := &grpc.StreamDesc{StreamName: "Connect", ServerStreams: true, ClientStreams: true}
	stream, err := cc.NewStream(ctx, desc, "/AgentService/Connect")
	if err != nil {
		return cc, nil, hello, err
	}
	a.stages.enter(stageHeaders)
	md, err := stream.Header()
	if err != nil {
		return cc, nil, hello, err
	}
	if md == nil { // refused before any header: the status is with the stream
		return cc, nil, hello, refusal(stream)
	}
	hello, err = link.ParseServerHello(md, a.conn.cfg.Extensions)
	return cc, stream, hello, err
}

// refusal is the status of a stream that has ended.
func refusal(stream grpc.ClientStream) error {
	var p wire.Packet
	err := stream.RecvMsg(&p)
	p.Payload.Free()
	if err == nil || errors.Is(err, io.EOF) {
		return errors.New("server ended the stream without headers")
	}
	return err
}
