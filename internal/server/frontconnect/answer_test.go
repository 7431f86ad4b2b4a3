package frontconnect

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

func TestFailureBytes(t *testing.T) {
	cases := []struct {
		reason wire.Reason
		text   string
		want   string
	}{
		{wire.ReasonNoAgent, "No agent available",
			"HTTP/1.1 503 No agent available\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n" +
				"Content-Length: 50\r\n\r\ncurrently no tunnels available: No agent available"},
		{wire.ReasonBackendTimeout, "timed out waiting for backend dial",
			"HTTP/1.1 504 timed out waiting for backend dial\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n" +
				"Content-Length: 58\r\n\r\nBackend dial timeout: timed out waiting for backend dial\r\n"},
		{wire.ReasonBackendLost, "agent lost",
			"HTTP/1.1 502 agent lost\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n" +
				"Content-Length: 35\r\n\r\nBackend context error: agent lost\r\n"},
		{wire.ReasonRefused, "dial tcp 127.0.0.1:1: connect: connection refused",
			"HTTP/1.1 502 dial tcp 127.0.0.1:1: connect: connection refused\r\nConnection: close\r\n" +
				"Content-Type: text/plain; charset=utf-8\r\nContent-Length: 49\r\n\r\ndial tcp 127.0.0.1:1: connect: connection refused"},
	}
	for _, c := range cases {
		got := failure(&wire.DialError{Reason: c.reason, Err: errors.New(c.text)})
		if string(got) != c.want {
			t.Errorf("reason %d:\n got %q\nwant %q", c.reason, got, c.want)
		}
	}
}

func TestStatusOfEachReason(t *testing.T) {
	want := map[wire.Reason]int{
		wire.ReasonOther: 502, wire.ReasonNoAgent: 503, wire.ReasonRefused: 502, wire.ReasonDialTimeout: 504,
		wire.ReasonUnreachable: 502, wire.ReasonUnknownHost: 502, wire.ReasonDNSTemporary: 502,
		wire.ReasonTooManyFiles: 503, wire.ReasonPolicy: 403, wire.ReasonBadAddress: 502, wire.ReasonProtocol: 502,
		wire.ReasonBackendTimeout: 504, wire.ReasonBackendLost: 502, wire.ReasonCanceled: 502,
		wire.ReasonLimit: 503, wire.ReasonShutdown: 503, wire.ReasonClientTimeout: 504, wire.Reason(9999): 502,
	}
	for r, status := range want {
		if got := statusOf(r); got != status {
			t.Errorf("statusOf(%d) = %d, want %d", r, got, status)
		}
	}
}

func TestPhraseCannotEndTheLine(t *testing.T) {
	cases := map[string]string{
		"":                                 "",
		"\r\n":                             "",
		"a\r\nSet-Cookie: x\r\n\r\n<html>": "a Set-Cookie: x <html>",
		"tab\there":                        "tab here",
		"na\x00me\x7f\x1b[31m":             "na?me??[31m",
		"caf\u00e9 \xff":                   "caf? ?",
		strings.Repeat("x", 3*maxPhrase):   strings.Repeat("x", maxPhrase),
	}
	for in, want := range cases {
		if got := phrase(in); got != want {
			t.Errorf("phrase(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzFailure(f *testing.F) {
	f.Add(uint32(1), "connection refused")
	f.Add(uint32(2), "x\r\ny: z\r\n\r\n")
	f.Fuzz(func(t *testing.T, reason uint32, text string) {
		b := failure(&wire.DialError{Reason: wire.Reason(reason), Err: errors.New(text)})
		br := bufio.NewReader(bytes.NewReader(b))
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatalf("answer %q is not HTTP: %v", b, err)
		}
		defer resp.Body.Close()
		if len(resp.Header) != 3-1 && len(resp.Header) != 3 {
			t.Fatalf("answer %q has headers %v", b, resp.Header)
		}
		if _, err := io.ReadAll(resp.Body); err != nil {
			t.Fatalf("body of %q: %v", b, err)
		}
		if rest, _ := io.ReadAll(br); len(rest) > 0 {
			t.Fatalf("%d bytes follow the body", len(rest))
		}
	})
}
