package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// proxyMethod is the one method that a frontend has. COMPAT 1.1.
const proxyMethod = "/ProxyService/Proxy"

// errBackstop is the cause of a dial that lasts longer than Options.DialTimeout.
var errBackstop = errors.New("no answer within the client's own limit")

// withBackstop bounds a dial.
func (o Options) withBackstop(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, o.DialTimeout, errBackstop)
}

// ended is the error of a dial that ctx, which is from withBackstop, has ended.
func ended(ctx context.Context, address string) *wire.DialError {
	cause := context.Cause(ctx)
	if errors.Is(cause, errBackstop) {
		return dialError(wire.ReasonClientTimeout, address, errBackstop)
	}
	err := ctx.Err()
	if !errors.Is(cause, err) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return dialError(wire.ReasonCanceled, address, err)
}

// openStream connects, if need be, and opens a stream. ctx bounds that and no
// more: the stream lives until cancel is called. ctx's values are the stream's.
func openStream(ctx context.Context, cc *grpc.ClientConn, opts Options, address string) (grpc.ClientStream, context.CancelFunc, *wire.DialError) {
	streamCtx := context.WithoutCancel(ctx)
	for key, values := range link.ExtensionsMetadata(opts.extensions()) {
		streamCtx = metadata.AppendToOutgoingContext(streamCtx, key, values[0])
	}
	streamCtx, cancel := context.WithCancel(streamCtx)
	stop := context.AfterFunc(ctx, cancel)
	desc := &grpc.StreamDesc{StreamName: "Proxy", ClientStreams: true, ServerStreams: true}
	stream, err := cc.NewStream(streamCtx, desc, proxyMethod, grpc.ForceCodecV2(link.Codec{}))
	if !stop() {
		cancel()
		return nil, nil, ended(ctx, address)
	}
	if err != nil {
		cancel()
		return nil, nil, dialError(wire.ReasonStreamSetup, address, err)
	}
	return stream, cancel, nil
}

// checkNetwork refuses what an agent must not dial. COMPAT 9.2.
func checkNetwork(network, address string) *wire.DialError {
	switch network {
	case "tcp", "tcp4", "tcp6":
		return nil
	}
	return dialError(wire.ReasonProtocol, address, fmt.Errorf("protocol not supported: %q", network))
}

// dial sends the DIAL_REQ and waits for its answer, or for the end of ctx, which
// is from withBackstop. It is called once.
func (c *Conn) dial(ctx context.Context, network, address string) *wire.DialError {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != fresh {
		return dialError(wire.ReasonTunnelClosed, address, or(c.endErr, net.ErrClosed))
	}
	c.address = address
	c.dialID = wire.DialID(1 + rand.Int64N(math.MaxInt64))
	c.advance(dialled)
	c.sender.dialReq = network
	c.startSender()
	c.mu.Unlock()
	select {
	case <-c.answered:
	case <-ctx.Done():
	}
	c.mu.Lock()
	if c.state == dialing {
		c.giveUp(ended(ctx, address))
	}
	return c.dialErr
}

// giveUp ends a dial that was not answered. The server is told, so that it can
// cancel the dial at its agent, before our side of the stream ends. mu is held.
func (c *Conn) giveUp(err *wire.DialError) {
	c.dialErr = err
	c.over(finished, nil)
	c.sender.dialClose = true
	c.sender.closeSend = true
	c.arm(endGrace, c.cancel)
	c.startSender()
}
