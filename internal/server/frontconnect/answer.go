package frontconnect

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// successLine is the whole answer to a CONNECT that succeeded. A client may fail
// if anything follows it before the client has spoken. COMPAT 2.3.
const successLine = "HTTP/1.1 200 Connection Established\r\n\r\n"

// wrongMethod is the body of the answer to any other method.
const wrongMethod = "Only the method CONNECT is served over here."

// maxPhrase bounds the reason phrase in bytes; maxBody the body.
const (
	maxPhrase = 256
	maxBody   = 4096
)

// statusOf is the HTTP status for a dial that failed. COMPAT 2.4, 11.
func statusOf(r wire.Reason) int {
	switch r {
	case wire.ReasonNoAgent, wire.ReasonTooManyFiles, wire.ReasonLimit, wire.ReasonShutdown:
		return http.StatusServiceUnavailable
	case wire.ReasonPolicy:
		return http.StatusForbidden
	case wire.ReasonDialTimeout, wire.ReasonBackendTimeout, wire.ReasonClientTimeout:
		return http.StatusGatewayTimeout
	}
	return http.StatusBadGateway
}

// failure is the whole answer to a CONNECT that failed. The reason is also the
// reason phrase, because kube-apiserver prints only the status line.
func failure(err *wire.DialError) []byte {
	text := err.Error()
	status := statusOf(err.Reason)
	p := phrase(text)
	if p == "" {
		p = http.StatusText(status)
	}
	b := body(err.Reason, text)
	out := make([]byte, 0, 160+len(p)+len(b))
	out = append(out, "HTTP/1.1 "...)
	out = strconv.AppendInt(out, int64(status), 10)
	out = append(out, ' ')
	out = append(out, p...)
	out = append(out, "\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: "...)
	out = strconv.AppendInt(out, int64(len(b)), 10)
	out = append(out, "\r\n\r\n"...)
	return append(out, b...)
}

// body is the text for people, in the forms that operators know. COMPAT 2.4.
func body(r wire.Reason, text string) string {
	text = strings.ToValidUTF8(text, "?")
	if len(text) > maxBody {
		text = strings.ToValidUTF8(text[:maxBody], "")
	}
	switch r {
	case wire.ReasonNoAgent:
		return "currently no tunnels available: " + text
	case wire.ReasonBackendLost:
		return "Backend context error: " + text + "\r\n"
	case wire.ReasonBackendTimeout:
		return "Backend dial timeout: " + text + "\r\n"
	}
	return text
}

// phrase makes text fit for a status line: printable ASCII on one line, bounded.
// An agent chose the text, so nothing in it may end the line or hide a header.
func phrase(text string) string {
	out := make([]byte, 0, min(len(text), maxPhrase))
	for _, r := range text {
		if len(out) == maxPhrase {
			break
		}
		switch {
		case r == ' ' || r == '\t' || r == '\r' || r == '\n':
			if len(out) > 0 && out[len(out)-1] != ' ' {
				out = append(out, ' ')
			}
		case r > ' ' && r < 0x7f:
			out = append(out, byte(r))
		default:
			out = append(out, '?')
		}
	}
	return strings.TrimSpace(string(out))
}
