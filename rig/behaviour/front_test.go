package behaviour

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"testing"

	"github.com/culvert-proxy/culvert/rig/process"
	"github.com/culvert-proxy/culvert/tunnel/client"
)

// kind is a way in.
type kind int

const (
	connectUDS kind = iota
	connectTLS
	grpcSingle   // over UDS, a gRPC connection per dial, as kube-apiserver does it
	grpcReusable // over UDS, many dials on one gRPC connection
	grpcTLS      // over TCP with mutual TLS, reusable
)

func kinds() []kind { return []kind{connectUDS, connectTLS, grpcSingle, grpcReusable, grpcTLS} }

func (k kind) String() string {
	switch k {
	case connectUDS:
		return "connect-uds"
	case connectTLS:
		return "connect-tls"
	case grpcSingle:
		return "grpc-uds-single"
	case grpcReusable:
		return "grpc-uds-reusable"
	default:
		return "grpc-tls"
	}
}

func (k kind) connect() bool { return k == connectUDS || k == connectTLS }

func (k kind) tcp() bool { return k == connectTLS || k == grpcTLS }

func (k kind) mode() string {
	if k.connect() {
		return "http-connect"
	}
	return "grpc"
}

// eachKind runs f as a subtest for each of the given ways in, or all.
func eachKind(t *testing.T, f func(t *testing.T, k kind), only ...kind) {
	if len(only) == 0 {
		only = kinds()
	}
	for _, k := range only {
		t.Run(k.String(), func(t *testing.T) { f(t, k) })
	}
}

// eachKindAtOnce is eachKind for tests that mostly wait.
func eachKindAtOnce(t *testing.T, f func(t *testing.T, k kind), only ...kind) {
	if len(only) == 0 {
		only = kinds()
	}
	var runs runs
	for _, k := range only {
		runs.add(k.String(), func(t *testing.T) { f(t, k) })
	}
	runs.together(t)
}

// tunnel is a client's connection, whatever the way in.
type tunnel interface {
	net.Conn
	CloseWrite() error
	// Abort ends the connection without order, if the medium can say that.
	Abort() error
}

// errNoAbort: a Unix socket knows one kind of close only.
var errNoAbort = errors.New("this medium has no abortive close")

// front dials through a server.
type front struct {
	kind     kind
	address  string // path of the socket, or host:port
	tls      *tls.Config
	options  client.Options
	reusable *client.Reusable
}

func newFront(t testing.TB, k kind, ground *process.Ground, server *process.Server, options client.Options) *front {
	t.Helper()
	f := &front{kind: k, address: server.Frontend, options: options}
	if k.tcp() {
		f.tls = clientTLS(t, ground)
	}
	var err error
	switch k {
	case grpcReusable:
		f.reusable, err = client.NewReusable("unix://"+f.address, options)
	case grpcTLS:
		f.reusable, err = client.NewReusable(f.address, options, client.WithTLS(f.tls))
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// clientTLS is what a client of a TCP frontend needs.
func clientTLS(t testing.TB, ground *process.Ground) *tls.Config {
	t.Helper()
	ca, err := os.ReadFile(ground.CA)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		t.Fatal("no certificate in the CA's file")
	}
	pair, err := tls.LoadX509KeyPair(ground.Client.Cert, ground.Client.Key)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
	if !soak() {
		// The key exchange that is cheapest under the race detector: handshakes are
		// not what this is about.
		config.CurvePreferences = []tls.CurveID{tls.CurveP256}
	}
	return config
}

// Dial opens a tunnel to an endpoint.
func (f *front) Dial(ctx context.Context, address string) (tunnel, error) {
	switch {
	case f.kind.connect():
		return f.dialConnect(ctx, address)
	case f.reusable != nil:
		return asTunnel(f.reusable.DialContext(ctx, "tcp", address))
	}
	single, err := client.NewSingleUse(ctx, f.address, f.options)
	if err != nil {
		return nil, err
	}
	return asTunnel(single.DialContext(ctx, "tcp", address))
}

func asTunnel(c net.Conn, err error) (tunnel, error) {
	if err != nil {
		return nil, err
	}
	return c.(*client.Conn), nil
}

// dial is Dial with a limit against hanging.
func (f *front) dial(address string) (tunnel, error) {
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	return f.Dial(ctx, address)
}

// mustDial is dial for a test's own goroutine.
func (f *front) mustDial(t testing.TB, address string) tunnel {
	t.Helper()
	c, err := f.dial(address)
	if err != nil {
		t.Fatalf("dial %s: %v", address, err)
	}
	return c
}

func (f *front) close() {
	if f.reusable != nil {
		f.reusable.Close()
	}
}
