package transport

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/culvert-proxy/culvert/internal/certs"
)

// pki is a certificate authority with one server and one client certificate.
type pki struct {
	*certs.Authority
	dir            string
	server, client certs.Pair
}

func newPKI(t *testing.T, name string) *pki {
	t.Helper()
	dir := t.TempDir()
	ca, err := certs.New(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	p := &pki{Authority: ca, dir: dir}
	var e1, e2 error
	p.server, e1 = ca.Server("server", "127.0.0.1", "proxy.example")
	p.client, e2 = ca.Client("client")
	if err := errors.Join(e1, e2); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *pki) serverConfig() ServerTLSConfig {
	return ServerTLSConfig{
		CertFile: p.server.Cert, KeyFile: p.server.Key, ClientCAFile: p.CA(),
		Protocol: ProtocolHTTP2, CheckInterval: time.Nanosecond,
	}
}

func (p *pki) clientConfig() ClientTLSConfig {
	return ClientTLSConfig{
		CAFile: p.CA(), CertFile: p.client.Cert, KeyFile: p.client.Key,
		ServerName: "proxy.example", CheckInterval: time.Nanosecond,
	}
}

func mustServer(t *testing.T, cfg ServerTLSConfig) *ServerTLS {
	t.Helper()
	s, err := NewServerTLS(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustClient(t *testing.T, cfg ClientTLSConfig) *ClientTLS {
	t.Helper()
	c, err := NewClientTLS(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func replace(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// outcome of one handshake, from both sides.
type outcome struct {
	client, server error
	state          tls.ConnectionState // the client's
}

// handshake runs one TLS handshake over loopback TCP, and then waits for the
// server's verdict, which with TLS 1.3 comes after the client believes all is well.
func handshake(t *testing.T, server *tls.Config, client *tls.Config) outcome {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	verdict := make(chan error, 1)
	go func() {
		raw, err := l.Accept()
		if err != nil {
			verdict <- err
			return
		}
		defer raw.Close()
		c := tls.Server(raw, server)
		err = c.Handshake()
		if err == nil {
			_, err = c.Write([]byte("."))
		}
		verdict <- err
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	c := tls.Client(raw, client)
	var o outcome
	if o.client = c.Handshake(); o.client == nil {
		_, o.client = c.Read(make([]byte, 1))
	}
	o.state = c.ConnectionState()
	raw.Close()
	o.server = <-verdict
	return o
}

func (o outcome) ok() bool { return o.client == nil && o.server == nil }

func TestServerTLSReloadsItsCertificate(t *testing.T) {
	p := newPKI(t, "ca")
	var reports []error
	cfg := p.serverConfig()
	cfg.Report = func(err error) { reports = append(reports, err) }
	s := mustServer(t, cfg)
	client := mustClient(t, p.clientConfig()).Config()

	serial := func() string {
		o := handshake(t, s.Config(), client)
		if !o.ok() {
			t.Fatal(o.client, o.server)
		}
		return o.state.PeerCertificates[0].SerialNumber.String()
	}
	first := serial()
	good := read(t, p.server.Cert)

	// A certificate that does not fit the key must not be used, nor one that is gone.
	replace(t, p.server.Cert, read(t, p.client.Cert))
	for range 2 {
		if serial() != first {
			t.Error("a certificate without its key came into use")
		}
	}
	os.Remove(p.server.Cert)
	for range 2 {
		if serial() != first {
			t.Error("the last good certificate was given up")
		}
	}
	if len(reports) != 2 || reports[0] == nil || !strings.Contains(reports[1].Error(), p.server.Cert) {
		t.Errorf("reports %v, want each failure once", reports)
	}
	replace(t, p.server.Cert, good)
	if serial() != first {
		t.Error("the certificate changed, its file did not")
	}
	reports = nil
	if _, err := p.Server("server", "proxy.example"); err != nil { // same file names
		t.Fatal(err)
	}
	if serial() == first {
		t.Error("the new certificate is not in use")
	}
	if len(reports) != 1 || reports[0] != nil {
		t.Errorf("reports %v, want one success", reports)
	}
}

func TestServerTLSRemovedCAEndsItsClients(t *testing.T) {
	old, next := newPKI(t, "old"), newPKI(t, "next")
	cfg := old.serverConfig()
	cfg.MinVersion = tls.VersionTLS12
	s := mustServer(t, cfg)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		replace(t, old.CA(), read(t, old.CA()))
		client := mustClient(t, old.clientConfig()).Config()
		client.MaxVersion = version
		client.ClientSessionCache = tls.NewLRUClientSessionCache(8)
		before := read(t, old.CA())
		for range 2 {
			if o := handshake(t, s.Config(), client); !o.ok() || o.state.DidResume {
				t.Fatalf("version %x: %v, %v, resumed %v", version, o.client, o.server, o.state.DidResume)
			}
		}
		replace(t, old.CA(), read(t, next.CA()))
		if o := handshake(t, s.Config(), client); o.server == nil {
			t.Errorf("version %x: a client of the removed CA came in (resumed %v)", version, o.state.DidResume)
		}
		replace(t, old.CA(), before)
	}
}

func TestServerTLSClientCertificates(t *testing.T) {
	p, other := newPKI(t, "ca"), newPKI(t, "other")
	asking := mustServer(t, p.serverConfig())
	open := p.serverConfig()
	open.ClientCAFile = ""
	notAsking := mustServer(t, open)

	with := mustClient(t, p.clientConfig()).Config()
	none := with.Clone()
	none.Certificates = nil
	foreign := with.Clone()
	foreign.Certificates = mustClient(t, other.clientConfig()).Config().Certificates
	wrongUse := with.Clone()
	pair, err := tls.LoadX509KeyPair(p.server.Cert, p.server.Key)
	if err != nil {
		t.Fatal(err)
	}
	wrongUse.Certificates = []tls.Certificate{pair}

	tests := []struct {
		name   string
		server *ServerTLS
		client *tls.Config
		ok     bool
	}{
		{"valid", asking, with, true},
		{"none", asking, none, false},
		{"of another CA", asking, foreign, false},
		{"not for clients", asking, wrongUse, false},
		{"none asked for", notAsking, none, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if o := handshake(t, tt.server.Config(), tt.client); (o.server == nil) != tt.ok {
				t.Errorf("client %v, server %v", o.client, o.server)
			}
		})
	}
}

func TestServerTLSVersions(t *testing.T) {
	p := newPKI(t, "ca")
	for _, tt := range []struct {
		name     string
		min, max uint16 // the server's, the client's
		suites   []uint16
		protocol string
		ok       bool
	}{
		{"default refuses 1.1", 0, tls.VersionTLS11, nil, ProtocolHTTP2, false},
		{"default takes 1.2", 0, tls.VersionTLS12, nil, ProtocolHTTP2, true},
		{"1.3 only", tls.VersionTLS13, tls.VersionTLS12, nil, ProtocolHTTP2, false},
		{"1.1 allowed, but no suite for it", tls.VersionTLS10, tls.VersionTLS11, nil, ProtocolHTTP2, false},
		{"1.1 allowed with its suites", tls.VersionTLS10, tls.VersionTLS11, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA}, ProtocolHTTP2, true},
		{"1.1 allowed for HTTP/1", tls.VersionTLS10, tls.VersionTLS11, nil, ProtocolHTTP1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := p.serverConfig()
			cfg.MinVersion, cfg.CipherSuites, cfg.Protocol = tt.min, tt.suites, tt.protocol
			client := mustClient(t, p.clientConfig()).Config()
			client.NextProtos = nil
			client.MinVersion, client.MaxVersion = tls.VersionTLS10, tt.max
			if o := handshake(t, mustServer(t, cfg).Config(), client); o.ok() != tt.ok {
				t.Errorf("client %v, server %v", o.client, o.server)
			}
		})
	}
}

// COMPAT 1.4, HTTP CONNECT.
func TestServerTLSHTTP1Protocols(t *testing.T) {
	p := newPKI(t, "ca")
	cfg := p.serverConfig()
	cfg.Protocol = ProtocolHTTP1
	s := mustServer(t, cfg)
	for _, tt := range []struct {
		offer []string
		want  string
		ok    bool
	}{
		{nil, "", true},
		{[]string{"http/1.1"}, "http/1.1", true},
		{[]string{"h2", "http/1.1"}, "http/1.1", true},
		{[]string{"h2"}, "", false},
		{[]string{"foo"}, "", false},
	} {
		client := mustClient(t, p.clientConfig()).Config()
		client.NextProtos = tt.offer
		o := handshake(t, s.Config(), client)
		if o.ok() != tt.ok || o.ok() && o.state.NegotiatedProtocol != tt.want {
			t.Errorf("%q: client %v, server %v, protocol %q", tt.offer, o.client, o.server, o.state.NegotiatedProtocol)
		}
		if !tt.ok && (o.client == nil || !strings.Contains(o.client.Error(), "no application protocol")) {
			t.Errorf("%q: client sees %v, want the alert", tt.offer, o.client)
		}
	}
}

func TestTLSStartErrors(t *testing.T) {
	p := newPKI(t, "ca")
	bad := func(name, text string) string {
		path := t.TempDir() + "/" + name
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := string(read(t, p.CA()))
	key := string(read(t, p.server.Key))
	malformed := "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	for _, tt := range []struct{ name, text, want string }{
		{"empty", "", "no certificate"},
		{"not PEM", "hello", "no certificate"},
		{"a key only", key, "no certificate"},
		{"malformed", malformed, "certificate 1"},
		{"malformed after a good one", ca + malformed, "certificate 2"},
		{"good among others", "# ours\n" + key + ca, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := bad("ca", tt.text)
			server, client := p.serverConfig(), p.clientConfig()
			server.ClientCAFile, client.CAFile = file, file
			_, serr := NewServerTLS(server)
			_, cerr := NewClientTLS(client)
			for side, err := range map[string]error{"server": serr, "client": cerr} {
				switch {
				case tt.want == "" && err != nil:
					t.Errorf("%s: %v", side, err)
				case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), file)):
					t.Errorf("%s: %v, want the file and %q", side, err, tt.want)
				}
			}
		})
	}
	t.Run("missing files", func(t *testing.T) {
		server, client := p.serverConfig(), p.clientConfig()
		server.CertFile, client.CAFile = "/no/such", "/no/such"
		for _, err := range []error{errOf(NewServerTLS(server)), errOf(NewClientTLS(client))} {
			if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "/no/such") {
				t.Error(err)
			}
		}
		if errOf(NewServerTLS(ServerTLSConfig{})) == nil || errOf(NewClientTLS(ClientTLSConfig{})) == nil ||
			errOf(NewClientTLS(ClientTLSConfig{CAFile: p.CA(), CertFile: p.client.Cert})) == nil {
			t.Error("an incomplete configuration was accepted")
		}
	})
}

func errOf[T any](_ T, err error) error { return err }
