package wire

import (
	"strings"
	"unicode/utf8"
)

// Limits of texts, in bytes, when they are written and when they are read. What
// is longer is cut: no name that can be dialled is longer, and an error is for
// people.
const (
	maxProtocol = 32
	maxAddress  = 1024
	maxError    = 4096
)

// clean cuts s to limit bytes and replaces what is not UTF-8.
func clean(s string, limit int) string {
	if len(s) > limit {
		for limit > 0 && !utf8.RuneStart(s[limit]) {
			limit--
		}
		s = s[:limit]
	}
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "?")
}
