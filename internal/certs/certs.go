// Package certs is a small certificate authority for the demo and for tests. It
// is not meant for a cluster.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Authority issues certificates that chain to one root. Safe for concurrent use.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair names the files of a certificate and its key.
type Pair struct {
	Cert, Key string
}

// New makes a root in dir, which must exist; its certificate is in the file
// that CA names. Everything it issues lies in dir too, and is valid for a day.
func New(dir, name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := template(name)
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a := &Authority{dir: dir, cert: cert, key: key}
	return a, writePEM(a.CA(), "CERTIFICATE", der, 0o644)
}

// CA is the file of the root certificate.
func (a *Authority) CA() string { return filepath.Join(a.dir, a.cert.Subject.CommonName+".crt") }

// Server issues a server certificate for hosts, which are names or addresses.
func (a *Authority) Server(name string, hosts ...string) (Pair, error) {
	return a.issue(name, x509.ExtKeyUsageServerAuth, hosts)
}

// Client issues a client certificate whose common name is name.
func (a *Authority) Client(name string, hosts ...string) (Pair, error) {
	return a.issue(name, x509.ExtKeyUsageClientAuth, hosts)
}

func (a *Authority) issue(name string, usage x509.ExtKeyUsage, hosts []string) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	template, err := template(name)
	if err != nil {
		return Pair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{usage}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	pair := Pair{
		Cert: filepath.Join(a.dir, name+".crt"),
		Key:  filepath.Join(a.dir, name+".key"),
	}
	if err := writePEM(pair.Cert, "CERTIFICATE", der, 0o644); err != nil {
		return Pair{}, err
	}
	return pair, writePEM(pair.Key, "PRIVATE KEY", keyDER, 0o600)
}

func template(name string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(24 * time.Hour),
	}, nil
}

// writePEM replaces path at once, so that a reader sees the old or the new one.
func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	temporary := path + ".new"
	if err := os.WriteFile(temporary, text, mode); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(temporary, path)
}
