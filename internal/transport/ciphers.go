package transport

import (
	"crypto/tls"
	"fmt"
	"strings"
)

// MinVersionNames are the names that ParseMinVersion takes.
func MinVersionNames() []string {
	return []string{"VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"}
}

// ParseMinVersion turns the name of a TLS version into its number. The empty
// name means TLS 1.2. COMPAT 3.1.
func ParseMinVersion(name string) (uint16, error) {
	switch name {
	case "VersionTLS10":
		return tls.VersionTLS10, nil
	case "VersionTLS11":
		return tls.VersionTLS11, nil
	case "", "VersionTLS12":
		return tls.VersionTLS12, nil
	case "VersionTLS13":
		return tls.VersionTLS13, nil
	}
	return 0, fmt.Errorf("unknown TLS version %q; valid: %s", name, strings.Join(MinVersionNames(), ", "))
}

// CipherSuiteNames are the names that ParseCipherSuites takes: the suites that
// crypto/tls does not call insecure.
func CipherSuiteNames() []string {
	suites := tls.CipherSuites()
	names := make([]string, len(suites))
	for i, s := range suites {
		names[i] = s.Name
	}
	return names
}

// ParseCipherSuites turns names into numbers, in the same order; none give nil,
// which means the default choice. COMPAT 7.7.
func ParseCipherSuites(names []string) ([]uint16, error) {
	var ids []uint16
	for _, name := range names {
		id, ok := cipherSuite(name)
		if !ok {
			return nil, fmt.Errorf("unknown or insecure cipher suite %q; valid: %s", name, strings.Join(CipherSuiteNames(), ", "))
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func cipherSuite(name string) (uint16, bool) {
	for _, s := range tls.CipherSuites() {
		if s.Name == name {
			return s.ID, true
		}
	}
	return 0, false
}

// http2Suites is the default choice for HTTP/2, which forbids CBC (RFC 9113,
// appendix A).
func http2Suites() []uint16 {
	var ids []uint16
	for _, s := range tls.CipherSuites() {
		if !strings.Contains(s.Name, "_CBC_") {
			ids = append(ids, s.ID)
		}
	}
	return ids
}
