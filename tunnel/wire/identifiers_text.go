package wire

import (
	"fmt"
	"net/url"
	"strings"
)

// maxIdentifiers bounds what one agent may present. Servers built with current
// Go releases read no longer a query either.
const maxIdentifiers = 10000

// ParseIdentifiers reads the value of an agent's own --agent-identifiers: a URL
// query, plain or percent-encoded (each part, or the string as a whole). It is
// strict (NewIdentifiers). An empty string is no identifiers.
func ParseIdentifiers(s string) (Identifiers, error) {
	pairs, err := splitPairs(unwrap(s))
	if err != nil {
		return Identifiers{}, err
	}
	return NewIdentifiers(pairs)
}

// ParsePresentedIdentifiers reads what an agent presented to a server. A string
// that is not a URL query is an error, and the agent must be refused: no pair of
// it can be trusted. A value that cannot be used is left out and listed in
// ignored, for a log line and a count. An unknown key is passed over silently,
// since newer agents may know more keys. Of a key that takes one value the first
// counts, even if it is unusable. COMPAT 7.3 and 11.
func ParsePresentedIdentifiers(s string) (ids Identifiers, ignored []IgnoredIdentifier, err error) {
	pairs, err := splitPairs(s)
	if err != nil {
		return Identifiers{}, nil, err
	}
	var b identifierBuilder
	for _, p := range pairs {
		if !knownKey(p.Key) {
			continue
		}
		if err := b.add(p); err != nil {
			ignored = append(ignored, IgnoredIdentifier{p, err})
			b.spoil(p.Key)
		}
	}
	return b.ids, ignored, nil
}

// spoil makes an unusable value of a key that takes one count as its value.
func (b *identifierBuilder) spoil(key string) {
	if key != KeyDefaultRoute && key != KeyExcludeDefault && key != KeyFailureZone {
		return
	}
	if b.single == nil {
		b.single = map[string]string{}
	}
	if _, given := b.single[key]; !given {
		b.single[key] = ""
	}
}

// Encode is the form that travels in the header "agentidentifiers": a URL query
// with every value percent-encoded. Values are as written, because old servers
// compare bytes.
func (i Identifiers) Encode() string {
	var b strings.Builder
	for n, p := range i.Pairs {
		if n > 0 {
			b.WriteByte('&')
		}
		b.WriteString(p.Key)
		b.WriteByte('=')
		b.WriteString(url.QueryEscape(p.Value))
	}
	return b.String()
}

// unwrap undoes percent-encoding of the string as a whole, which also hides the
// "=" that every plain string has.
func unwrap(s string) string {
	if strings.Contains(s, "=") {
		return s
	}
	if whole, err := url.PathUnescape(s); err == nil && strings.Contains(whole, "=") {
		return whole
	}
	return s
}

// splitPairs reads a URL query as net/url does, but keeps the order of the pairs.
func splitPairs(s string) ([]Identifier, error) {
	if strings.Count(s, "&") >= maxIdentifiers {
		return nil, fmt.Errorf("more than %d identifiers", maxIdentifiers)
	}
	var pairs []Identifier
	for part := range strings.SplitSeq(s, "&") {
		if part == "" {
			continue
		}
		if strings.Contains(part, ";") {
			return nil, fmt.Errorf(`identifier %q: a ";" where only "&" separates pairs`, part)
		}
		rawKey, rawValue, _ := strings.Cut(part, "=")
		key, err := url.QueryUnescape(rawKey)
		if err != nil {
			return nil, fmt.Errorf("identifier %q: %w", part, err)
		}
		value, err := url.QueryUnescape(rawValue)
		if err != nil {
			return nil, fmt.Errorf("identifier %q: %w", part, err)
		}
		pairs = append(pairs, Identifier{key, value})
	}
	return pairs, nil
}
