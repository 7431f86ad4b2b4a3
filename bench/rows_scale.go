package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// linksRow measures memory per idle agent link, with 10,000 of them on one server.
func (s *stage) linksRow(ctx context.Context, t *table) {
	const what, links = "idle agent link (mTLS), server", 10000
	c, err := s.startCulvert(ctx, "http-connect", nil)
	if err != nil {
		t.fail(what, err)
		return
	}
	defer c.server.stop()
	defer c.agent.stop()
	crowd, err := s.newCrowd(c)
	if err != nil {
		t.fail(what, err)
		return
	}
	defer crowd.close()
	// The first hundred make the server allocate what it needs once.
	if err := crowd.grow(ctx, 100); err != nil {
		t.fail(what, err)
		return
	}
	before, err := c.server.resident()
	if err != nil {
		t.fail(what, err)
		return
	}
	began := time.Now()
	if err := crowd.grow(ctx, links-100); err != nil {
		t.fail(what, err)
		return
	}
	took := time.Since(began)
	time.Sleep(2 * time.Second)
	after, err := c.server.resident()
	if err != nil {
		t.fail(what, err)
		return
	}
	t.add(row{what: what, value: float64(after-before) / (links - 100) / 1024, budget: 64, unit: " KiB",
		measured: fmt.Sprintf("growth of resident memory over %d links, which came in %v", links-100, took.Round(time.Second))})
}

// crowd is many agents that do nothing.
type crowd struct {
	address string
	creds   credentials.TransportCredentials
	conns   []*grpc.ClientConn
}

func (s *stage) newCrowd(c *culvert) (*crowd, error) {
	conf, err := mutualTLS(s.client.Cert, s.client.Key, s.ca)
	if err != nil {
		return nil, err
	}
	return &crowd{address: "127.0.0.1:" + c.agentPort, creds: credentials.NewTLS(conf)}, nil
}

// grow adds n links, each kept by the server.
func (c *crowd) grow(ctx context.Context, n int) error {
	first := len(c.conns)
	c.conns = append(c.conns, make([]*grpc.ClientConn, n)...)
	const workers = 8
	return inParallel(workers, func(worker int) error {
		for i := worker; i < n; i += workers {
			if err := c.join(ctx, first+i); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *crowd) join(ctx context.Context, i int) error {
	conn, err := grpc.NewClient("passthrough:///"+c.address, grpc.WithTransportCredentials(c.creds),
		grpc.WithReadBufferSize(1<<10), grpc.WithWriteBufferSize(1<<10))
	if err != nil {
		return err
	}
	c.conns[i] = conn
	hello := link.AgentHello{AgentID: "idle-" + strconv.Itoa(i), Instance: strconv.Itoa(i), Slot: "1",
		Extensions: wire.ExtCredit | wire.ExtHalfClose | wire.ExtReason | wire.ExtReady}
	stream, err := conn.NewStream(metadata.NewOutgoingContext(ctx, hello.Metadata()),
		&grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/AgentService/Connect", grpc.ForceCodecV2(link.Codec{}))
	if err != nil {
		return err
	}
	if _, err := stream.Header(); err != nil {
		return err
	}
	return stream.SendMsg(&wire.Packet{Type: wire.Ready})
}

func (c *crowd) close() {
	for _, conn := range c.conns {
		if conn != nil {
			conn.Close()
		}
	}
}
