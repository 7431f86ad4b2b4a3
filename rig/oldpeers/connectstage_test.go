package oldpeers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/internal/server"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// established is the whole answer to a CONNECT that succeeded. COMPAT 2.3.
const established = "HTTP/1.1 200 Connection Established\r\n\r\n"

// withConnect plays f on a server whose frontend is HTTP CONNECT, with an old agent.
func withConnect(t *testing.T, f func(t *testing.T, s *stage)) {
	t.Helper()
	cfg := config()
	cfg.Mode = server.ModeHTTPConnect
	withBareServer(t, cfg, func(t *testing.T, s *stage) {
		s.agent = s.connect("a")
		beside := s.established(1)
		beside.works()
		f(t, s)
		if s.agent == nil {
			return // the script has lost it
		}
		beside.works()
		synctest.Wait()
		s.agent.ExpectNothing()
	})
}

// caller is a client of the CONNECT frontend.
type caller struct {
	net.Conn
	t     *testing.T
	agent *tunneltest.AgentPeer
	id    wire.ConnectionID
}

// call connects and sends bytes.
func (s *stage) call(head string) *caller {
	s.t.Helper()
	conn, err := s.net.Dialer("client")(context.Background(), front)
	if err != nil {
		s.t.Fatal(err)
	}
	return newCaller(s.t, conn, s.agent, head)
}

func newCaller(t *testing.T, conn net.Conn, a *tunneltest.AgentPeer, head string) *caller {
	t.Helper()
	t.Cleanup(func() { conn.Close() })
	c := &caller{Conn: conn, t: t, agent: a}
	c.write(head)
	return c
}

// kubeAPIServer is what kube-apiserver sends: the Host is always the same. 10.2.
func kubeAPIServer(target string) string {
	return "CONNECT " + target + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
}

// asked takes the DIAL_REQ that a CONNECT makes.
func (c *caller) asked(target string) wire.DialID {
	c.t.Helper()
	k := c.agent.Expect(wire.DialRequest)
	want := wire.Packet{Type: wire.DialRequest, Protocol: "tcp", Address: target, DialID: k.DialID}
	if line(k) != line(want) || k.DialID <= 0 {
		c.t.Fatalf("the agent is asked %s, want %s", line(k), line(want))
	}
	return k.DialID
}

// established makes a tunnel as kube-apiserver does.
func (s *stage) established(id wire.ConnectionID) *caller {
	s.t.Helper()
	c := s.call(kubeAPIServer(endpointAddress))
	c.establish(id)
	return c
}

// establish answers the dial and reads the 200, which must be alone.
func (c *caller) establish(id wire.ConnectionID) {
	c.t.Helper()
	c.agent.Send(dialRsp(c.asked(endpointAddress), id))
	c.id = id
	c.once(established)
}

// once reads once, which must give exactly these bytes.
func (c *caller) once(want string) {
	c.t.Helper()
	buf := make([]byte, 4096)
	_ = c.SetReadDeadline(time.Now().Add(tunneltest.Patience))
	if n, err := c.Read(buf); err != nil || string(buf[:n]) != want {
		c.t.Fatalf("one read gives %q, %v, want %q", buf[:n], err, want)
	}
}

func (c *caller) write(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.Conn, text); err != nil {
		c.t.Fatal(err)
	}
}

// reads checks that exactly these bytes come next.
func (c *caller) reads(want string) {
	c.t.Helper()
	got := make([]byte, len(want))
	_ = c.SetReadDeadline(time.Now().Add(tunneltest.Patience))
	if _, err := io.ReadFull(c.Conn, got); err != nil || string(got) != want {
		c.t.Fatalf("the client read %q, %v, want %q", got, err, want)
	}
}

// readsEOF checks that the end comes next.
func (c *caller) readsEOF() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(tunneltest.Patience))
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		c.t.Fatalf("the client read %d bytes, %v, want the end", n, err)
	}
}

// works checks that data passes both ways.
func (c *caller) works() {
	c.t.Helper()
	c.write("up")
	expect(c.t, c.agent.Peer, data(c.id, "up"))
	c.agent.Send(data(c.id, "down"))
	c.reads("down")
}

// closeWrite half-closes the socket.
func (c *caller) closeWrite() {
	c.t.Helper()
	if err := c.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		c.t.Fatal(err)
	}
}

// answer is a failure's whole answer, and the end of the connection behind it.
type answer struct {
	status int
	phrase string
	body   string
}

// fails reads an answer, which must have its length and say that it is the last.
func (c *caller) fails() answer {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(tunneltest.Patience))
	all, err := io.ReadAll(c.Conn)
	if err != nil {
		c.t.Fatalf("reading the answer: %v, after %q", err, all)
	}
	rsp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(string(all))), &http.Request{Method: http.MethodGet})
	if err != nil {
		c.t.Fatalf("%q: %v", all, err)
	}
	body, err := io.ReadAll(rsp.Body)
	if err != nil || rsp.ContentLength != int64(len(body)) || !rsp.Close || rsp.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		c.t.Errorf("%q: %v; length %d, close %v", all, err, rsp.ContentLength, rsp.Close)
	}
	phrase := strings.TrimPrefix(rsp.Status, fmt.Sprintf("%d ", rsp.StatusCode))
	return answer{rsp.StatusCode, phrase, string(body)}
}

// unread is how many bytes have come that were not read.
func (c *caller) unread() int { return c.Conn.(*tunneltest.Conn).Unread() }
