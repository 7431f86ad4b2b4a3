package behaviour

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/culvert-proxy/culvert/rig/process"
)

// Whatever a client of the CONNECT frontend sends, it is answered with a failure
// or cut off; a healthy tunnel beside it notices nothing and nothing is left.
func TestBehaviour11HostileConnects(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		s := newStand(t, k, standOptions{ids: []string{""}})
		e := newEndpoint(t, neverCloses)
		n := startNeighbour(t, s.front, newEndpoint(t, echo).addr)
		for _, c := range hostileHeads(e.addr) {
			t.Run(c.name, func(t *testing.T) {
				answer := s.raw(t, []byte(c.request))
				if !c.right(answer) {
					t.Errorf("answered with %.200q", answer)
				}
				n.unmoved(t)
				s.alive(t)
			})
		}
		t.Run("TLS where none is spoken, or none where it is", func(t *testing.T) {
			raw, err := dialBusy(t.Context(), network(k), s.address)
			if err != nil {
				t.Fatal(err)
			}
			defer raw.Close()
			raw.SetDeadline(time.Now().Add(hang))
			hello := "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"
			if k.tcp() {
				hello = connectRequest(e.addr)
			}
			io.WriteString(raw, hello)
			raw.(interface{ CloseWrite() error }).CloseWrite()
			if got, _ := io.ReadAll(raw); bytes.Contains(got, []byte(" 200 ")) {
				t.Errorf("answered with %.200q", got)
			}
			n.unmoved(t)
		})
		t.Run("heads that never end", func(t *testing.T) {
			for _, part := range []string{"", "CONNECT ", "CONNECT x HTTP/1.1\r\nA: b\r\n"} {
				conn, raw, err := s.reach(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				io.WriteString(conn, part)
				raw.Close()
			}
			n.unmoved(t)
		})
		n.stop(t)
		if e.count() > 0 {
			t.Errorf("the endpoint was reached %d times", e.count())
		}
		s.quiet()
	}, connectUDS, connectTLS)
}

func network(k kind) string {
	if k.tcp() {
		return "tcp"
	}
	return "unix"
}

// raw sends bytes, and nothing more, and returns all that comes back.
func (f *front) raw(t testing.TB, request []byte) []byte {
	t.Helper()
	conn, raw, err := f.reach(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	raw.SetDeadline(time.Now().Add(hang))
	go func() {
		conn.Write(request) // the server may stop reading somewhere in it
		conn.CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if e, ok := err.(net.Error); ok && e.Timeout() {
		t.Errorf("neither an answer nor an end within %v", hang)
	}
	return got
}

type hostileHead struct {
	name, request string
	right         func(answer []byte) bool
}

func hostileHeads(address string) []hostileHead {
	status := func(codes ...string) func([]byte) bool {
		return func(answer []byte) bool {
			for _, code := range codes {
				if bytes.HasPrefix(answer, []byte("HTTP/1.1 "+code+" ")) {
					return true
				}
			}
			return false
		}
	}
	// What cannot be understood may also be cut off without a word.
	refused := func(answer []byte) bool {
		return len(answer) == 0 || bytes.HasPrefix(answer, []byte("HTTP/1.1 4")) || bytes.HasPrefix(answer, []byte("HTTP/1.1 5"))
	}
	return []hostileHead{
		{"another method", "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", status("405")},
		{"another method with a body", "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello", status("405")},
		{"no target", "CONNECT HTTP/1.1\r\nHost: x\r\n\r\n", refused},
		{"an empty target", "CONNECT  HTTP/1.1\r\nHost:\r\n\r\n", refused},
		{"an asterisk", "CONNECT * HTTP/1.1\r\nHost: x\r\n\r\n", refused},
		{"no port", "CONNECT 127.0.0.1 HTTP/1.1\r\nHost: x\r\n\r\n", status("502", "400")},
		{"an impossible port", "CONNECT 127.0.0.1:99999 HTTP/1.1\r\nHost: x\r\n\r\n", status("502", "400")},
		{"a URL", "CONNECT http://" + address + "/ HTTP/1.1\r\nHost: x\r\n\r\n", refused},
		{"a header that is none", "CONNECT " + address + " HTTP/1.1\r\nHost: x\r\nwhat is this\r\n\r\n", refused},
		{"two hosts", "CONNECT " + address + " HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", refused},
		{"zero bytes", "CONNECT \x00\x00:1 HTTP/1.1\r\nHost: x\r\n\r\n", refused},
		{"an older protocol", "CONNECT " + address + " HTTP/0.9\r\n\r\n", refused},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", refused},
		{"no HTTP", strings.Repeat("\xff\x00\r\n", 1000), refused},
		{"a target without end", "CONNECT " + strings.Repeat("a", 2<<20) + ":80 HTTP/1.1\r\nHost: x\r\n\r\n", refused},
		{"headers without end", "CONNECT " + address + " HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("A: b\r\n", 1<<20), refused},
	}
}

// A status line cannot be forged through the text of a dial's failure.
func TestBehaviour11HostileNames(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		s := newStand(t, k, standOptions{ids: []string{""}})
		for _, name := range []string{"%0d%0aSet-Cookie:x", "a\tb", strings.Repeat("x", 5000), "%s%n", "nobody..invalid"} {
			answer := s.raw(t, []byte("CONNECT "+name+":80 HTTP/1.1\r\nHost: x\r\n\r\n"))
			head, _, whole := bytes.Cut(answer, []byte("\r\n\r\n"))
			lines := strings.Split(string(head), "\r\n")
			if !whole || bytes.HasPrefix(answer, []byte("HTTP/1.1 2")) || len(lines) > 5 || strings.ContainsAny(lines[0], "\r\n\x00") {
				t.Errorf("%.40q was answered with %.300q", name, answer)
			}
		}
		process.Eventually(t, hang, "nothing is pending", func() bool { return s.server.Metric(pendingDials) == 0 })
		s.quiet()
	}, connectUDS, connectTLS)
}
