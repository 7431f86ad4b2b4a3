package client

import (
	"net"
	"testing"
)

func TestAddresses(t *testing.T) {
	for _, address := range []string{"10.1.2.3:80", "[fd00::1]:443", "node-1.example:10250"} {
		c := &Conn{address: address}
		remote, local := c.RemoteAddr(), c.LocalAddr()
		if remote.String() != address || remote.Network() != "tcp" {
			t.Errorf("remote %s %s", remote.Network(), remote)
		}
		if _, numeric := remote.(*net.TCPAddr); numeric != (address[0] != 'n') {
			t.Errorf("%s is a %T", address, remote)
		}
		if local == nil || local.Network() != "tcp" {
			t.Errorf("local %v", local)
		}
		if _, _, err := net.SplitHostPort(local.String()); err != nil {
			t.Errorf("local %v: %v", local, err)
		}
	}
}
