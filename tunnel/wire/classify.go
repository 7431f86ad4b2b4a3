package wire

import "strings"

// ClassifyDialText finds the reason in the error text of a DIAL_RSP from a peer
// without the extension "reason": the text of one of Go's network errors from
// an agent (COMPAT 1.7), or an old server's own. It is the only place where the
// meaning of a text is guessed. A text that says nothing is ReasonOther.
//
// The cause stands at the end of such a text, and names that the client chose
// stand before it, so the end counts first: a host named "timeout" that does
// not exist is no timeout. Otherwise a key word anywhere counts, in the order in
// which the reference looks for them (COMPAT 2.4).
func ClassifyDialText(text string) Reason {
	text = strings.ToLower(strings.TrimSpace(text))
	for _, k := range dialTexts() {
		if strings.HasSuffix(text, k.words) {
			return k.reason
		}
	}
	for _, k := range dialTexts() {
		if strings.Contains(text, k.words) {
			return k.reason
		}
	}
	return ReasonOther
}

// dialText is a key phrase, in lower case, and what it means.
type dialText struct {
	words  string
	reason Reason
}

func dialTexts() []dialText {
	return []dialText{
		{"timed out waiting for backend dial", ReasonBackendTimeout}, // an old server's
		{"no agent available", ReasonNoAgent},                        // an old server's
		{"i/o timeout", ReasonDialTimeout},
		{"deadline exceeded", ReasonDialTimeout},
		{"timed out", ReasonDialTimeout}, // ETIMEDOUT's own text
		{"timeout", ReasonDialTimeout},
		{"too many open files", ReasonTooManyFiles},
		{"connection refused", ReasonRefused},
		{"network is unreachable", ReasonUnreachable},
		{"no route to host", ReasonUnreachable},
		{"host is unreachable", ReasonUnreachable},
		{"network is down", ReasonUnreachable},
		{"host is down", ReasonUnreachable},
		{"no such host", ReasonUnknownHost},
		{"server misbehaving", ReasonDNSTemporary},
		{"name resolution", ReasonDNSTemporary}, // "temporary failure in name resolution"
		{"missing address", ReasonBadAddress},
		{"missing port in address", ReasonBadAddress},
		{"too many colons in address", ReasonBadAddress},
		{"unknown port", ReasonBadAddress},
		{"invalid port", ReasonBadAddress},
		{"no suitable address found", ReasonUnreachable},
		{"unknown network", ReasonProtocol},
		{"operation was canceled", ReasonCanceled},
		{"context canceled", ReasonCanceled},
	}
}
