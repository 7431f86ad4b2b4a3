package frontconnect

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-proxy/culvert/internal/server/relay"
)

func TestKeepAliveOnAcceptedConnections(t *testing.T) {
	for _, m := range []string{"tcp", "tls"} {
		t.Run(m, func(t *testing.T) {
			f := newFront(t, m)
			_, tun := f.open(t)
			rc := tun.f.(*session).sock.rc
			rc.Control(func(fd uintptr) {
				for opt, want := range map[[2]int]int{
					{unix.SOL_SOCKET, unix.SO_KEEPALIVE}:   1,
					{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE}:  5,
					{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL}: 5,
					{unix.IPPROTO_TCP, unix.TCP_KEEPCNT}:   3,
				} {
					if got, err := unix.GetsockoptInt(int(fd), opt[0], opt[1]); got != want || err != nil {
						t.Errorf("socket option %v is %d, %v; want %d", opt, got, err, want)
					}
				}
			})
			tun.f.Close(relay.End{})
		})
	}
}
