package client

import (
	"net"
	"net/netip"
)

// Addr is the address of an endpoint that was dialled by name.
type Addr string

// Network is "tcp".
func (Addr) Network() string { return "tcp" }

// String is the address as it was dialled.
func (a Addr) String() string { return string(a) }

// RemoteAddr is the address that was dialled: a *net.TCPAddr if it is numeric,
// else an Addr.
func (c *Conn) RemoteAddr() net.Addr {
	if ap, err := netip.ParseAddrPort(c.address); err == nil {
		return net.TCPAddrFromAddrPort(ap)
	}
	return Addr(c.address)
}

// LocalAddr is the unspecified address: the agent's socket, which the endpoint
// sees, is not known here.
func (c *Conn) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4zero} }
