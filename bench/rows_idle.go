package main

import (
	"context"
	"fmt"
	"net"
	"time"
)

// idleRows measures memory per idle tunnel: each has echoed once and is silent.
func (s *stage) idleRows(ctx context.Context, t *table) {
	const tunnels = 2000
	for _, way := range []struct {
		name   string
		mode   string
		budget float64
	}{
		{"CONNECT/UDS", "http-connect", 16},
		{"reusable client", "grpc", 24},
		{"single-use client", "grpc", 48},
	} {
		// Fresh processes, so that what earlier rows left behind is not counted.
		c, err := s.startCulvert(ctx, way.mode, nil)
		if err != nil {
			t.fail("idle tunnel, "+way.name, err)
			continue
		}
		server, agent, err := s.idle(ctx, c, way.name, tunnels)
		if err != nil {
			t.fail("idle tunnel, "+way.name, err)
			continue
		}
		t.add(row{what: "idle tunnel, server, " + way.name, value: server, budget: way.budget, unit: " KiB",
			measured: fmt.Sprintf("growth of resident memory over %d tunnels", tunnels)})
		t.add(row{what: "idle tunnel, agent, " + way.name, value: agent, budget: 16, unit: " KiB",
			measured: fmt.Sprintf("growth of resident memory over %d tunnels", tunnels)})
		c.server.stop()
		c.agent.stop()
	}
}

// idle opens n tunnels and returns the growth in KiB per tunnel.
func (s *stage) idle(ctx context.Context, c *culvert, way string, n int) (server, agent float64, err error) {
	via, done, err := s.way(ctx, c, way)
	if err != nil {
		return 0, 0, err
	}
	defer done()
	// A first few make both processes allocate what they need once.
	if _, err := churn(ctx, via, 4, 50); err != nil {
		return 0, 0, err
	}
	time.Sleep(time.Second)
	serverBefore, agentBefore, err := c.memory()
	if err != nil {
		return 0, 0, err
	}
	for range n {
		conn, err := quiet(ctx, via)
		if err != nil {
			return 0, 0, err
		}
		defer conn.Close()
	}
	time.Sleep(2 * time.Second)
	serverAfter, agentAfter, err := c.memory()
	if err != nil {
		return 0, 0, err
	}
	return float64(serverAfter-serverBefore) / float64(n) / 1024, float64(agentAfter-agentBefore) / float64(n) / 1024, nil
}

func (c *culvert) memory() (server, agent int64, err error) {
	if server, err = c.server.resident(); err != nil {
		return 0, 0, err
	}
	agent, err = c.agent.resident()
	return server, agent, err
}

// quiet opens a connection that has echoed once.
func quiet(ctx context.Context, via dial) (net.Conn, error) {
	conn, err := via(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(append(order(orderEcho, 0), 1)); err != nil {
		conn.Close()
		return nil, err
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}
