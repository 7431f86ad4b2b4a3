package client

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// serveOnce accepts dials on a real listener and tells each stream's authority.
func serveOnce(t *testing.T, l net.Listener, opts ...grpc.ServerOption) <-chan string {
	t.Helper()
	authorities := make(chan string, 10)
	handler := func(_ any, stream grpc.ServerStream) error {
		md, _ := metadata.FromIncomingContext(stream.Context())
		authorities <- md.Get(":authority")[0]
		var p wire.Packet
		if err := stream.RecvMsg(&p); err != nil {
			return err
		}
		stream.SendMsg(&wire.Packet{Type: wire.DialResponse, DialID: p.DialID, ConnectionID: connID})
		stream.RecvMsg(&p)
		stream.SendMsg(&wire.Packet{Type: wire.CloseResponse, ConnectionID: connID})
		return nil
	}
	server := grpc.NewServer(append(opts, grpc.ForceServerCodecV2(link.Codec{}), grpc.UnknownServiceHandler(handler), grpc.WaitForHandlers(true))...)
	served := make(chan struct{})
	go func() {
		defer close(served)
		server.Serve(l)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return authorities
}

func TestTargets(t *testing.T) {
	dir, err := os.MkdirTemp("", "cv") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "f.sock")
	socket, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	onSocket := serveOnce(t, socket)
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serverTLS, clientTLS := certificates(t)
	onPort := serveOnce(t, port, grpc.Creds(credentials.NewTLS(serverTLS)))
	_, number, _ := net.SplitHostPort(port.Addr().String())

	kube := func(ctx context.Context, addr string) (net.Conn, error) { return net.Dial("unix", addr) }
	tests := []struct {
		name        string
		target      string
		options     []grpc.DialOption
		authorities <-chan string
		want        string
	}{
		{"unix URL", "unix://" + path, nil, onSocket, "localhost"},
		{"unix", "unix:" + path, nil, onSocket, "localhost"},
		{"path", path, nil, onSocket, url.PathEscape(path)},
		{"path with kube-apiserver's options", path, []grpc.DialOption{grpc.WithContextDialer(kube), grpc.WithTransportCredentials(insecure.NewCredentials())}, onSocket, url.PathEscape(path)},
		{"address", port.Addr().String(), []grpc.DialOption{WithTLS(clientTLS)}, onPort, port.Addr().String()},
		{"name", "localhost:" + number, []grpc.DialOption{WithTLS(clientTLS)}, onPort, "localhost:" + number},
		{"scheme", "dns:///localhost:" + number, []grpc.DialOption{WithTLS(clientTLS)}, onPort, "localhost:" + number},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			single, err := NewSingleUse(t.Context(), test.target, Options{}, test.options...)
			if err != nil {
				t.Fatal(err)
			}
			defer single.Close()
			reusable, err := NewReusable(test.target, Options{}, test.options...)
			if err != nil {
				t.Fatal(err)
			}
			defer reusable.Close()
			for _, tunnel := range []Tunnel{single, reusable} {
				conn, err := tunnel.DialContext(t.Context(), "tcp", endpoint)
				if err != nil {
					t.Fatal(err)
				}
				if got := <-test.authorities; got != test.want {
					t.Errorf("authority %q, want %q", got, test.want)
				}
				if err := conn.(*Conn).CloseContext(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestTCPNeedsCredentials(t *testing.T) {
	_, err := NewReusable("127.0.0.1:1", Options{})
	if err == nil {
		t.Error("a tunnel over TCP without a word about TLS")
	}
	_, err = NewSingleUse(t.Context(), "127.0.0.1:1", Options{})
	if err == nil {
		t.Error("a tunnel over TCP without a word about TLS")
	}
}

// certificates is a server's and a client's configuration that fit.
func certificates(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotAfter:     time.Now().Add(time.Hour),
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:         true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	pair := []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
	return &tls.Config{Certificates: pair, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12},
		&tls.Config{Certificates: pair, RootCAs: pool, MinVersion: tls.VersionTLS12}
}
