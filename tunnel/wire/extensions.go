package wire

import "strings"

// Extensions is a set of the protocol's negotiated additions.
type Extensions uint16

// The extensions. PROTOCOL.md says what each permits.
const (
	ExtCredit Extensions = 1 << iota
	ExtHalfClose
	ExtReason
	ExtPing
	ExtReady
	ExtServerCount
	ExtDrain
)

// AllExtensions are those that this program knows.
const AllExtensions = ExtDrain<<1 - 1

// Metadata keys, as they travel (lower case). COMPAT 1.3; DESIGN 4.1 for the last three.
const (
	HeaderAgentID          = "agentid"
	HeaderAgentIdentifiers = "agentidentifiers"
	HeaderAuthorization    = "authorization"
	HeaderServerID         = "serverid"
	HeaderServerCount      = "servercount"
	HeaderExtensions       = "knp-extensions"
	HeaderInstance         = "knp-instance"
	HeaderLink             = "knp-link"
)

// Has reports whether every extension of x is in e.
func (e Extensions) Has(x Extensions) bool { return e&x == x }

// ParseExtensions reads the values of HeaderExtensions: exactly one, a list
// separated by commas. Words that are not known are left out. No value or
// several mean no extensions: whoever repeats a key is not one of us, and which
// value counts is not to be guessed.
func ParseExtensions(values ...string) Extensions {
	if len(values) != 1 {
		return 0
	}
	var e Extensions
	for word := range strings.SplitSeq(values[0], ",") {
		word = strings.TrimSpace(word)
		for x := Extensions(1); x <= AllExtensions; x <<= 1 {
			if x.word() == word {
				e |= x
			}
		}
	}
	return e
}

// String is the list as it travels in HeaderExtensions, empty for none.
func (e Extensions) String() string {
	var words []string
	for x := Extensions(1); x <= AllExtensions; x <<= 1 {
		if e.Has(x) {
			words = append(words, x.word())
		}
	}
	return strings.Join(words, ",")
}

// word is the name of one extension.
func (e Extensions) word() string {
	switch e {
	case ExtCredit:
		return "credit"
	case ExtHalfClose:
		return "half-close"
	case ExtReason:
		return "reason"
	case ExtPing:
		return "ping"
	case ExtReady:
		return "ready"
	case ExtServerCount:
		return "server-count"
	case ExtDrain:
		return "drain"
	}
	return ""
}
