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

// Names of ALPN.
const (
	ProtocolHTTP2 = "h2"
	ProtocolHTTP1 = "http/1.1"
)

// ServerTLSConfig describes the TLS side of a listener.
type ServerTLSConfig struct {
	CertFile, KeyFile string // needed
	// ClientCAFile names the CAs that may vouch for clients. If it is set every
	// client must present a certificate that one of them issued for client
	// authentication; if not, none is asked for.
	ClientCAFile string
	MinVersion   uint16   // 0 means TLS 1.2
	CipherSuites []uint16 // of TLS 1.2 and below; nil means the default choice
	// Protocol is what the listener speaks: ProtocolHTTP2 or ProtocolHTTP1.
	Protocol string
	// CheckInterval bounds how often the files are looked at; 0 means 1 s.
	CheckInterval time.Duration
	// Report, if not nil, is told of every change of the files: nil when new
	// contents came into use, else why the old ones stay. It must not block.
	Report func(error)
}

// ServerTLS is the TLS side of a listener, with files that may change. Safe for
// concurrent use.
type ServerTLS struct {
	// Fixed after construction.
	protocol string
	outer    *tls.Config // asks state for the configuration of each handshake
	state    *reloader[serverState]
}

// serverState is what the files said at one time.
type serverState struct {
	config *tls.Config
	// mute is config without ALPN: for a client of an HTTP/2 listener that
	// offers only other protocols. It gets a whole handshake, and then a close.
	// COMPAT 1.4.
	mute *tls.Config
}

// NewServerTLS reads the files for the first time.
func NewServerTLS(cfg ServerTLSConfig) (*ServerTLS, error) {
	if cfg.CertFile == "" || cfg.KeyFile == "" {
		return nil, errors.New("a certificate and a key are needed")
	}
	if cfg.MinVersion == 0 {
		cfg.MinVersion = tls.VersionTLS12
	}
	if cfg.CipherSuites == nil && cfg.Protocol == ProtocolHTTP2 {
		cfg.CipherSuites = http2Suites()
	}
	files := []string{cfg.CertFile, cfg.KeyFile}
	if cfg.ClientCAFile != "" {
		files = append(files, cfg.ClientCAFile)
	}
	state, err := newReloader(files, cfg.CheckInterval, cfg.Report, cfg.parse)
	if err != nil {
		return nil, err
	}
	s := &ServerTLS{protocol: cfg.Protocol, state: state}
	s.outer = &tls.Config{
		MinVersion:             cfg.MinVersion,
		SessionTicketsDisabled: true,
		GetConfigForClient:     s.configFor,
	}
	return s, nil
}

// parse makes a state of the contents of the certificate, key and CA files.
func (cfg ServerTLSConfig) parse(contents [][]byte) (*serverState, error) {
	pair, err := parsePair(cfg.CertFile, cfg.KeyFile, contents[0], contents[1])
	if err != nil {
		return nil, err
	}
	c := &tls.Config{
		Certificates: []tls.Certificate{pair},
		MinVersion:   cfg.MinVersion,
		CipherSuites: cfg.CipherSuites,
		NextProtos:   []string{cfg.Protocol},
		// A session that is resumed is not verified against the CAs of today.
		SessionTicketsDisabled: true,
	}
	if cfg.ClientCAFile != "" {
		if c.ClientCAs, err = parseCA(cfg.ClientCAFile, contents[2]); err != nil {
			return nil, err
		}
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	mute := c.Clone()
	mute.NextProtos = nil
	return &serverState{config: c, mute: mute}, nil
}

func (s *ServerTLS) configFor(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	state := s.state.get()
	if s.protocol == ProtocolHTTP2 && !slices.Contains(hello.SupportedProtos, ProtocolHTTP2) {
		return state.mute, nil
	}
	return state.config, nil
}

// Config is for listeners that do their own handshakes (tls.NewListener,
// http.Server). It must not be changed.
func (s *ServerTLS) Config() *tls.Config { return s.outer }

// Credentials are for a gRPC server. A stream's AuthInfo is a TLSAuthInfo.
func (s *ServerTLS) Credentials() credentials.TransportCredentials { return serverCredentials{s} }

type serverCredentials struct{ tls *ServerTLS }

// ServerHandshake implements credentials.TransportCredentials. raw has a
// deadline, which gRPC sets.
func (c serverCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn := tls.Server(raw, c.tls.outer)
	if err := conn.HandshakeContext(context.Background()); err != nil {
		_ = raw.Close()
		return nil, nil, err
	}
	state := conn.ConnectionState()
	if state.NegotiatedProtocol != c.tls.protocol {
		_ = conn.Close()
		return nil, nil, fmt.Errorf("TLS handshake with %s: client did not offer ALPN protocol %q", raw.RemoteAddr(), c.tls.protocol)
	}
	return conn, newTLSAuthInfo(state, raw), nil
}

func (c serverCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these are the credentials of a server")
}

func (c serverCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (c serverCredentials) Clone() credentials.TransportCredentials { return c }

func (c serverCredentials) OverrideServerName(string) error {
	return errors.New("these are the credentials of a server")
}
