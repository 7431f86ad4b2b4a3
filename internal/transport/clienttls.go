package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc/credentials"
)

// ClientTLSConfig describes the TLS side of a dialer.
type ClientTLSConfig struct {
	// CAFile names the CAs that may vouch for the server; needed, since the
	// system's own are never what is meant here.
	CAFile string
	// CertFile and KeyFile are what the client presents: both or none.
	CertFile, KeyFile string
	// ServerName is the name that the server's certificate must hold, a host
	// name or an IP address; empty means the host that is dialled.
	ServerName string
	// Protocols is the ALPN list, in order; nil means ProtocolHTTP2 alone.
	Protocols     []string
	CheckInterval time.Duration // as in ServerTLSConfig
	Report        func(error)   // as in ServerTLSConfig
}

// ClientTLS is the TLS side of a dialer, with files that may change. Safe for
// concurrent use.
type ClientTLS struct {
	// Fixed after construction.
	cfg   ClientTLSConfig
	state *reloader[tls.Config]
}

// NewClientTLS reads the files for the first time.
func NewClientTLS(cfg ClientTLSConfig) (*ClientTLS, error) {
	if cfg.CAFile == "" {
		return nil, errors.New("a CA file is needed to verify the server")
	}
	if (cfg.CertFile == "") != (cfg.KeyFile == "") {
		return nil, errors.New("a certificate needs a key, and a key a certificate")
	}
	if cfg.Protocols == nil {
		cfg.Protocols = []string{ProtocolHTTP2}
	}
	files := []string{cfg.CAFile}
	if cfg.CertFile != "" {
		files = append(files, cfg.CertFile, cfg.KeyFile)
	}
	state, err := newReloader(files, cfg.CheckInterval, cfg.Report, cfg.parse)
	if err != nil {
		return nil, err
	}
	return &ClientTLS{cfg: cfg, state: state}, nil
}

// parse makes a configuration of the contents of the CA, certificate and key files.
func (cfg ClientTLSConfig) parse(contents [][]byte) (*tls.Config, error) {
	pool, err := parseCA(cfg.CAFile, contents[0])
	if err != nil {
		return nil, err
	}
	c := &tls.Config{
		RootCAs:    pool,
		ServerName: cfg.ServerName,
		MinVersion: tls.VersionTLS12,
		NextProtos: slices.Clone(cfg.Protocols),
	}
	if cfg.CertFile != "" {
		pair, err := parsePair(cfg.CertFile, cfg.KeyFile, contents[1], contents[2])
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Config is the configuration for one handshake that starts now. The caller owns it.
func (c *ClientTLS) Config() *tls.Config { return c.state.get().Clone() }

// Credentials are for a gRPC client. A stream's AuthInfo is a TLSAuthInfo.
func (c *ClientTLS) Credentials() credentials.TransportCredentials {
	return clientCredentials{c}
}

// clientCredentials is a value: OverrideServerName is not supported, and
// nothing else changes.
type clientCredentials struct{ tls *ClientTLS }

// ClientHandshake implements credentials.TransportCredentials.
func (c clientCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	cfg := c.tls.Config()
	if cfg.ServerName == "" {
		cfg.ServerName = hostOf(authority)
	}
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, nil, fmt.Errorf("TLS handshake with %s: %w", raw.RemoteAddr(), err)
	}
	state := conn.ConnectionState()
	if state.NegotiatedProtocol == "" {
		_ = conn.Close()
		return nil, nil, fmt.Errorf("TLS handshake with %s: server chose none of the ALPN protocols %q", raw.RemoteAddr(), cfg.NextProtos)
	}
	return conn, newTLSAuthInfo(state, raw), nil
}

func (c clientCredentials) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these are the credentials of a client")
}

// Info does not name the server; what gRPC sends as :authority is the dialler's
// to say (grpc.WithAuthority).
func (c clientCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (c clientCredentials) Clone() credentials.TransportCredentials { return c }

func (c clientCredentials) OverrideServerName(string) error {
	return errors.New("the server name is part of the TLS configuration")
}

func hostOf(authority string) string {
	if host, _, err := net.SplitHostPort(authority); err == nil {
		return host
	}
	return authority
}
