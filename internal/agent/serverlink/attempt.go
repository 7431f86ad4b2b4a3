package serverlink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/experimental"

	"github.com/culvert-proxy/culvert/tunnel/link"
)

// attempt is one gRPC connection of which exactly one TCP connection is made:
// gRPC's own attempts to replace it would be links that nobody decided on.
type attempt struct {
	// Fixed after construction.
	conn   *Connector
	target Target
	cancel context.CancelCauseFunc // of the stream
	stages stages

	// Guarded by mu.
	mu     sync.Mutex
	dialed bool
	raw    net.Conn
	killed bool
}

var errUsedUp = errors.New("this link's connection is over")

// dial is what gRPC calls to connect.
func (a *attempt) dial(ctx context.Context, _ string) (net.Conn, error) {
	a.mu.Lock()
	again := a.dialed
	a.dialed = true
	a.mu.Unlock()
	if again {
		return nil, errUsedUp
	}
	a.stages.enter(stageConnect)
	c, err := a.conn.dial(ctx, a.target)
	if err != nil {
		a.stages.report(err)
		return nil, err
	}
	a.mu.Lock()
	a.raw = c
	killed := a.killed
	a.mu.Unlock()
	if killed {
		_ = c.Close()
		return nil, errUsedUp
	}
	return c, nil
}

// kill drops the connection below everything, whatever is queued.
func (a *attempt) kill() {
	a.mu.Lock()
	a.killed = true
	raw := a.raw
	a.mu.Unlock()
	if raw != nil {
		_ = raw.Close()
	}
}

// options are gRPC's for this attempt.
func (a *attempt) options(window int32) []grpc.DialOption {
	cfg := &a.conn.cfg
	return []grpc.DialOption{
		grpc.WithContextDialer(a.dial),
		grpc.WithTransportCredentials(&stagedCredentials{cfg.Credentials, a}),
		grpc.WithAuthority(a.target.authority()),
		grpc.WithKeepaliveParams(cfg.Keepalive),
		grpc.WithStaticStreamWindowSize(window),
		grpc.WithStaticConnWindowSize(window),
		grpc.WithReadBufferSize(readBuffer),
		grpc.WithWriteBufferSize(writeBuffer),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(link.Codec{}), grpc.MaxCallRecvMsgSize(maxMessage)),
		experimental.WithBufferPool(&a.conn.buffers),
		grpc.WithIdleTimeout(0),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableHealthCheck(),
		grpc.WithNoProxy(), // dial does it
	}
}

// stagedCredentials tells the stages of a handshake.
type stagedCredentials struct {
	credentials.TransportCredentials
	attempt *attempt
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *stagedCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c.attempt.stages.enter(stageTLS)
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		c.attempt.stages.report(fmt.Errorf("TLS handshake: %w", err))
		return nil, nil, err
	}
	c.attempt.stages.enter(stageStream)
	return conn, info, nil
}

// Clone implements credentials.TransportCredentials.
func (c *stagedCredentials) Clone() credentials.TransportCredentials {
	return &stagedCredentials{c.TransportCredentials.Clone(), c.attempt}
}

// Info leaves the authority to the target.
func (c *stagedCredentials) Info() credentials.ProtocolInfo {
	info := c.TransportCredentials.Info()
	info.ServerName = "" //nolint:staticcheck // deprecated for setting an authority; here one is taken away
	return info
}
