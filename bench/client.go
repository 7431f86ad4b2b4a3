package main

import (
	"context"
	"fmt"
	"net"

	"github.com/culvert-proxy/culvert/tunnel/client"
)

// reusable is one gRPC connection for many dials to the endpoint.
type reusable struct {
	tunnel   *client.Reusable
	endpoint string
}

func (s *stage) viaClient(_ context.Context, c *culvert) (*reusable, error) {
	tunnel, err := client.NewReusable("unix://"+c.socket, client.Options{})
	return &reusable{tunnel, s.endpoint}, err
}

func (r *reusable) dial(ctx context.Context) (net.Conn, error) {
	return r.tunnel.DialContext(ctx, "tcp", r.endpoint)
}

func (r *reusable) close() { r.tunnel.Close() }

// way returns how to dial c, and what ends it.
func (s *stage) way(ctx context.Context, c *culvert, name string) (dial, func(), error) {
	switch name {
	case "CONNECT/UDS":
		return s.viaConnect(c), func() {}, nil
	case "reusable client":
		r, err := s.viaClient(ctx, c)
		if err != nil {
			return nil, nil, err
		}
		return r.dial, r.close, nil
	case "single-use client":
		return func(ctx context.Context) (net.Conn, error) {
			tunnel, err := client.NewSingleUse(ctx, "unix://"+c.socket, client.Options{})
			if err != nil {
				return nil, err
			}
			return tunnel.DialContext(ctx, "tcp", s.endpoint)
		}, func() {}, nil
	}
	return nil, nil, fmt.Errorf("no way named %q", name)
}
