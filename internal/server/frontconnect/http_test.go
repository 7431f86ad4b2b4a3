package frontconnect

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

func TestOtherMethods(t *testing.T) {
	f := newFront(t, "unix")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return f.dial() }}}
	resp, err := client.Get("http://x/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != 405 || resp.Header.Get("X-Content-Type-Options") != "nosniff" || len(body) != 45 || resp.Header.Get("Allow") != "CONNECT" {
		t.Errorf("%d %v %q", resp.StatusCode, resp.Header, body)
	}
	if ct := resp.Header.Get("Content-Type"); ct != "text/plain; charset=utf-8" {
		t.Errorf("content type %q", ct)
	}
}

func TestKeptAliveAfter405(t *testing.T) {
	f := newFront(t, "unix")
	conn, err := f.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 2 {
		write(t, conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		for got := ""; !strings.HasSuffix(got, wrongMethod+"\n"); {
			got += read(t, conn, 1)
		}
	}
}

func TestTargets(t *testing.T) {
	cases := map[string]string{
		"CONNECT a:1 HTTP/1.1\r\nHost: b:2\r\n\r\n":        "a:1",
		"CONNECT a:1 HTTP/1.0\r\n\r\n":                     "a:1",
		"CONNECT /path HTTP/1.1\r\nHost: b:2\r\n\r\n":      "b:2",
		"CONNECT nopo HTTP/1.1\r\nHost: b:2\r\n\r\n":       "nopo",
		"CONNECT * HTTP/1.1\r\nHost: b:2\r\n\r\n":          "*",
		"CONNECT :80 HTTP/1.1\r\nHost: b:2\r\n\r\n":        ":80",
		"CONNECT [fd00::1]:80 HTTP/1.1\r\nHost: x\r\n\r\n": "[fd00::1]:80",
		"CONNECT a.b.svc:443 HTTP/1.1\r\n\r\n":             "a.b.svc:443",
	}
	f := newFront(t, "unix")
	for head, want := range cases {
		conn, err := f.dial()
		if err != nil {
			t.Fatal(err)
		}
		write(t, conn, head)
		tun := f.next(t)
		if tun.req.Address != want {
			t.Errorf("%q dials %q, want %q", head, tun.req.Address, want)
		}
		tun.fail(wire.ReasonRefused, "no")
		conn.Close()
	}
}

func TestALPN(t *testing.T) {
	f := newFront(t, "tls")
	_, base := tlsPair(t)
	base.InsecureSkipVerify = true
	for _, c := range []struct {
		offer []string
		want  string
		ok    bool
	}{{nil, "", true}, {[]string{"http/1.1"}, "http/1.1", true}, {[]string{"h2", "http/1.1"}, "http/1.1", true}, {[]string{"h2"}, "", false}, {[]string{"foo"}, "", false}} {
		cfg := base.Clone()
		cfg.NextProtos = c.offer
		conn, err := tls.Dial("tcp", f.addr.String(), cfg)
		if (err == nil) != c.ok {
			t.Errorf("offer %v: %v", c.offer, err)
		}
		if err == nil {
			if got := conn.ConnectionState().NegotiatedProtocol; got != c.want {
				t.Errorf("offer %v: got %q", c.offer, got)
			}
			conn.Close()
		}
	}
}
