package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"

	"google.golang.org/grpc/credentials"
)

// TLSAuthInfo is the AuthInfo of a stream over TLS.
type TLSAuthInfo struct {
	credentials.TLSInfo
	raw net.Conn
}

func newTLSAuthInfo(state tls.ConnectionState, raw net.Conn) TLSAuthInfo {
	return TLSAuthInfo{
		TLSInfo: credentials.TLSInfo{
			State:          state,
			CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		},
		raw: raw,
	}
}

// RawConn is the connection below TLS. Closing it ends every stream on it at
// once, whatever is queued; nothing else may be done with it.
func (a TLSAuthInfo) RawConn() net.Conn { return a.raw }

// PeerCertificates is the chain that the peer presented, its own first, or nil.
// It was verified if the listener has a client CA.
func (a TLSAuthInfo) PeerCertificates() []*x509.Certificate { return a.State.PeerCertificates }

// CleartextAuthInfo is the AuthInfo of a stream over a connection without TLS.
type CleartextAuthInfo struct {
	credentials.CommonAuthInfo
	raw net.Conn
}

// AuthType implements credentials.AuthInfo.
func (a CleartextAuthInfo) AuthType() string { return "cleartext" }

// RawConn is the stream's connection; see TLSAuthInfo.RawConn.
func (a CleartextAuthInfo) RawConn() net.Conn { return a.raw }

// Cleartext are credentials without any protection, for Unix sockets, whose file
// mode is the guard. A stream's AuthInfo is a CleartextAuthInfo.
func Cleartext() credentials.TransportCredentials { return cleartext{} }

type cleartext struct{}

func (cleartext) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return raw, cleartextInfo(raw), nil
}

func (cleartext) ClientHandshake(_ context.Context, _ string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return raw, cleartextInfo(raw), nil
}

func cleartextInfo(raw net.Conn) CleartextAuthInfo {
	return CleartextAuthInfo{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}, raw: raw}
}

func (cleartext) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "insecure"}
}

func (cleartext) Clone() credentials.TransportCredentials { return cleartext{} }

func (cleartext) OverrideServerName(string) error { return nil }
