package rig

import (
	"fmt"
	"testing/synctest"

	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
)

// names are what somebody is called on the network: a server has two names, and
// "" is anyone.
func (c *Cluster) names(who string) ([]string, error) {
	switch {
	case who == "":
		return []string{""}, nil
	case c.servers[who] != nil:
		return []string{frontendOf(who), agentSideOf(who)}, nil
	case c.agents[who] != nil, c.endpoints[who] != nil:
		return []string{who}, nil
	}
	if _, err := c.End(who); err != nil {
		return nil, fmt.Errorf("there is nobody called %s", who)
	}
	return []string{who}, nil
}

// between calls f for all pairs of names of a and b; b may be "", for anyone.
func (c *Cluster) between(a, b string, f func(a, b string)) error {
	from, err := c.names(a)
	if err != nil {
		return err
	}
	to, err := c.names(b)
	if err != nil {
		return err
	}
	for _, x := range from {
		for _, y := range to {
			f(x, y)
		}
	}
	return nil
}

// Shape sets how bytes travel between a and b, both ways; b may be "", for
// anyone. A shape between two holds before one of somebody and anyone.
func (c *Cluster) Shape(a, b string, s tunneltest.Shape) error {
	return c.between(a, b, func(x, y string) { c.net.ShapeBoth(x, y, s) })
}

// Cut breaks all connections between a and b; both notice at once.
func (c *Cluster) Cut(a, b string) error { return c.between(a, b, c.net.Cut) }

// Lose breaks an agent's link to a server so that only the agent notices: its
// reset never arrives. It is what a server sees of an agent whose node lost its
// power and came back, or of a NAT that forgot a connection.
func (c *Cluster) Lose(agent, server string) error {
	a := c.agents[agent]
	if a == nil {
		return fmt.Errorf("there is no agent %s", agent)
	}
	a.mu.Lock()
	conn := a.links[agentSideOf(server)]
	a.mu.Unlock()
	if conn == nil {
		return fmt.Errorf("agent %s has no link to %s", agent, server)
	}
	conn.Shape(tunneltest.Shape{Stall: true})
	conn.Reset()
	return nil
}

// process finds a server or an agent.
func (c *Cluster) process(name string) (process, error) {
	if s := c.servers[name]; s != nil {
		return s, nil
	}
	if a := c.agents[name]; a != nil {
		return a, nil
	}
	return nil, fmt.Errorf("there is no process %s", name)
}

type process interface {
	alive() bool
	start() error
	drain()
	kill()
}

// Drain tells a process to end, as SIGTERM does.
func (c *Cluster) Drain(name string) error {
	p, err := c.process(name)
	if err != nil {
		return err
	}
	p.drain()
	return nil
}

// Kill ends a process at once, as SIGKILL does.
func (c *Cluster) Kill(name string) error {
	p, err := c.process(name)
	if err != nil {
		return err
	}
	p.kill()
	return nil
}

// Start starts a process again that has ended, as it was started first.
func (c *Cluster) Start(name string) error {
	p, err := c.process(name)
	switch {
	case err != nil:
		return err
	case p.alive():
		return fmt.Errorf("%s is running", name)
	}
	return p.start()
}

// Restart kills a process and starts it again as soon as everybody has noticed.
func (c *Cluster) Restart(name string) error {
	if err := c.Kill(name); err != nil {
		return err
	}
	synctest.Wait()
	return c.Start(name)
}
