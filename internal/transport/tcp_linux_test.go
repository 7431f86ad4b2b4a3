package transport

import (
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func option(t *testing.T, c net.Conn, name int) int {
	t.Helper()
	sc, ok := c.(syscall.Conn)
	if !ok {
		t.Fatalf("%T has no descriptor", c)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var v int
	if cerr := raw.Control(func(fd uintptr) { v, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, name) }); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	return v
}

func TestTCPOptions(t *testing.T) {
	tests := []struct {
		name         string
		o            TCPOptions
		idle, lowat  int
		lowatDefault bool
	}{
		{name: "defaults", idle: 5, lowat: 64 << 10},
		{name: "explicit", o: TCPOptions{KeepAlive: 9 * time.Second, NotSentLimit: 4096}, idle: 9, lowat: 4096},
		{name: "no limit", o: TCPOptions{NotSentLimit: -1}, idle: 5, lowatDefault: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, err := ListenTCP(t.Context(), "127.0.0.1:0", tt.o)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			c, err := DialTCP(t.Context(), l.Addr().String(), tt.o)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			s, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if _, ok := s.(*net.TCPConn); !ok {
				t.Errorf("accepted a %T; gRPC needs the kernel's own type", s)
			}
			for side, conn := range map[string]net.Conn{"dialled": c, "accepted": s} {
				if got := option(t, conn, unix.TCP_KEEPIDLE); got != tt.idle {
					t.Errorf("%s: keepalive after %d s, want %d", side, got, tt.idle)
				}
				if got := option(t, conn, unix.TCP_NOTSENT_LOWAT); !tt.lowatDefault && got != tt.lowat {
					t.Errorf("%s: not-sent limit %d, want %d", side, got, tt.lowat)
				}
			}
		})
	}
}

func TestTCPPortInUse(t *testing.T) {
	l, err := ListenTCP(t.Context(), "127.0.0.1:0", TCPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = ListenTCP(t.Context(), l.Addr().String(), TCPOptions{})
	if err == nil || !strings.Contains(err.Error(), l.Addr().String()) || !strings.Contains(err.Error(), "in use") {
		t.Fatalf("error %v", err)
	}
}
