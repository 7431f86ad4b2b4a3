package rig

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/culvert-proxy/culvert/tunnel/client"
)

// DialConfig describes a client and its one dial.
type DialConfig struct {
	Client  string // its name
	Server  string // the server whose frontend it goes to
	Address string // of the endpoint
	// Old makes it a client without extensions. It means nothing to a server
	// whose frontend is HTTP CONNECT.
	Old bool
	// Paused makes it read nothing until it is resumed.
	Paused bool
	Within time.Duration // limit of the dial; 0 for none of its own
}

// Dial starts a client, as the mode of its server asks for, and returns at once.
// A name may be used again once its client is over.
func (c *Cluster) Dial(cfg DialConfig) (*End, error) {
	s := c.servers[cfg.Server]
	if s == nil {
		return nil, fmt.Errorf("there is no server %s", cfg.Server)
	}
	if err := c.free(cfg.Client); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	if cfg.Within > 0 {
		ctx, cancel = context.WithTimeout(ctx, cfg.Within)
	}
	e := newEnd(c.journal, cfg.Client)
	e.cancel = cancel
	if cfg.Paused {
		e.limit = 0
	}
	c.mu.Lock()
	c.ends[cfg.Client] = e
	c.mu.Unlock()
	dial := c.dialTunnel
	if s.cfg.Connect {
		dial = c.dialConnect
	}
	c.dials.Go(func() {
		defer cancel()
		m, err := dial(ctx, cfg)
		if err != nil {
			e.failed(reasonOf(err))
			return
		}
		c.journal.add(cfg.Client, "up")
		e.start(m)
	})
	return e, nil
}

// dialTunnel is kube-apiserver's way: a gRPC connection for one dial.
func (c *Cluster) dialTunnel(ctx context.Context, cfg DialConfig) (medium, error) {
	tunnel, err := client.NewSingleUse(ctx, frontendOf(cfg.Server), client.Options{DisableExtensions: cfg.Old},
		grpc.WithContextDialer(c.net.Dialer(cfg.Client)), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	conn, err := tunnel.DialContext(ctx, "tcp", cfg.Address)
	if err != nil {
		_ = tunnel.Close()
		return nil, err
	}
	return tunnelled{conn.(*client.Conn), tunnel}, nil
}
