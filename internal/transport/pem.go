package transport

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
)

// parseCA makes a pool of the certificates in text, the contents of file. A
// CERTIFICATE block that cannot be parsed is an error, and so is a text without
// any: a CA that is silently left out lets nobody in, and hides why. Blocks of
// other kinds are passed over.
func parseCA(file string, text []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	found := 0
	for {
		var block *pem.Block
		block, text = pem.Decode(text)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		found++
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("CA file %q: certificate %d: %w", file, found, err)
		}
		pool.AddCert(cert)
	}
	if found == 0 {
		return nil, fmt.Errorf("CA file %q holds no certificate", file)
	}
	return pool, nil
}

// parsePair joins a certificate chain and its key.
func parsePair(certFile, keyFile string, cert, key []byte) (tls.Certificate, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certificate %q with key %q: %w", certFile, keyFile, err)
	}
	return pair, nil
}
