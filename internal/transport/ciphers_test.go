package transport

import (
	"crypto/tls"
	"slices"
	"strings"
	"testing"
)

func TestParseMinVersion(t *testing.T) {
	for name, want := range map[string]uint16{
		"": tls.VersionTLS12, "VersionTLS10": tls.VersionTLS10, "VersionTLS11": tls.VersionTLS11,
		"VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13,
	} {
		if got, err := ParseMinVersion(name); err != nil || got != want {
			t.Errorf("%q: %x, %v", name, got, err)
		}
	}
	for _, name := range []string{"1.2", "versiontls12", "VersionTLS14", " VersionTLS12"} {
		_, err := ParseMinVersion(name)
		if err == nil {
			t.Errorf("%q was accepted", name)
			continue
		}
		for _, valid := range MinVersionNames() {
			if !strings.Contains(err.Error(), valid) {
				t.Errorf("%q: error does not list %s: %v", name, valid, err)
			}
		}
	}
}

// The names of COMPAT 7.7, no more and no fewer.
func TestCipherSuiteNames(t *testing.T) {
	want := []string{
		"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256",
		"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
		"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
		"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
		"TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
		"TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA", "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
	}
	got := CipherSuiteNames()
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestParseCipherSuites(t *testing.T) {
	got, err := ParseCipherSuites([]string{"TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", "TLS_AES_128_GCM_SHA256"})
	if err != nil || !slices.Equal(got, []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA, tls.TLS_AES_128_GCM_SHA256}) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := ParseCipherSuites(nil); got != nil || err != nil {
		t.Errorf("none: %v, %v", got, err)
	}
	for _, name := range []string{"", "TLS_RSA_WITH_AES_128_CBC_SHA", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA"} {
		if _, err := ParseCipherSuites([]string{name}); err == nil || !strings.Contains(err.Error(), "TLS_AES_256_GCM_SHA384") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestHTTP2SuitesHaveNoCBC(t *testing.T) {
	if ids := http2Suites(); len(ids) != 9 || slices.Contains(ids, tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA) {
		t.Errorf("%x", ids)
	}
}
