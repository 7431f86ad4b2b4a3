package frontconnect

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/culvert-proxy/culvert/internal/server/relay"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

func TestAbnormalEnd(t *testing.T) {
	want := map[string]error{"unix": nil, "tcp": syscall.ECONNRESET, "tls": io.ErrUnexpectedEOF}
	eachMedium(t, func(t *testing.T, f *front) {
		conn, tun := f.open(t)
		medium := "tcp"
		switch c := conn.(type) {
		case *tls.Conn:
			medium = "tls"
			conn = c.NetConn() // Go's TLS does not tell a missing close_notify at a record's edge
		case *net.UnixConn:
			medium = "unix"
		}
		tun.send(t, "all that arrived")
		tun.f.Close(relay.End{Reason: wire.ReasonLinkLost})
		got, err := rest(conn)
		switch {
		case medium == "tls":
			if err != nil || countRecords(t, got) != 1 {
				t.Errorf("%d records, then %v; want the data and no close_notify", countRecords(t, got), err)
			}
		case got != "all that arrived" || !errors.Is(err, want[medium]):
			t.Errorf("client read %q, %v; want an end of %v", got, err, want[medium])
		}
		eventually(t, "the socket is closed", func() bool { return f.Sessions() == 0 })
	})
}

// countRecords counts TLS records of raw bytes, without session tickets, which
// the client has read by the time it has read the 200 line.
func countRecords(t *testing.T, raw string) int {
	t.Helper()
	n := 0
	for len(raw) > 0 {
		if len(raw) < 5 {
			t.Fatalf("half a record header: %q", raw)
		}
		size := int(raw[3])<<8 | int(raw[4])
		raw = raw[5+size:]
		n++
	}
	return n
}

func TestOrderlyEndOverTLSHasCloseNotify(t *testing.T) {
	f := newFront(t, "tls")
	conn, tun := f.open(t)
	tun.send(t, "x")
	tun.f.Close(relay.End{})
	got, err := rest(conn.(*tls.Conn).NetConn())
	if err != nil || countRecords(t, got) != 2 {
		t.Errorf("%d records, then %v; want the data and close_notify", countRecords(t, got), err)
	}
}

func TestInterruptUnblocksWrites(t *testing.T) {
	eachMedium(t, func(t *testing.T, f *front) {
		_, tun := f.open(t)
		failed := make(chan error, 1)
		go func() {
			for {
				if err := tun.f.Write(wire.CopyPayload(make([]byte, 1<<20))); err != nil {
					failed <- err
					return
				}
			}
		}()
		tun.f.Interrupt()
		if err := <-failed; err == nil {
			t.Error("no error")
		}
		if tun.f.Write(wire.CopyPayload([]byte("x"))) == nil {
			t.Error("a write after Interrupt succeeded")
		}
		tun.f.Close(relay.End{Reason: wire.ReasonStuck})
	})
}
