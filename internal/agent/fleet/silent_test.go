package fleet

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/culvert-proxy/culvert/internal/agent/serverlink"
	"github.com/culvert-proxy/culvert/internal/certs"
	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// silentPeers are three that never answer: one accepts the connection and does
// nothing more, one ends the TLS handshake and does nothing more, one takes the
// stream and sends no header. The result stops them.
func silentPeers(n *tunneltest.Network, conf *tls.Config) (stop func()) {
	var wg sync.WaitGroup
	tcp, secure, headers := n.Listen("tcp"), n.Listen("tls"), n.Listen("headers")
	tcp.SetMode(tunneltest.Silent)
	var mu sync.Mutex
	var taken []net.Conn
	wg.Go(func() {
		for {
			raw, err := secure.Accept()
			if err != nil {
				return
			}
			conn := tls.Server(raw, conf)
			mu.Lock()
			taken = append(taken, conn)
			mu.Unlock()
			wg.Go(func() { _ = conn.Handshake() })
		}
	})
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(conf)), grpc.ForceServerCodecV2(link.Codec{}), grpc.WaitForHandlers(true),
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			<-stream.Context().Done()
			return nil
		}))
	wg.Go(func() { _ = server.Serve(headers) })
	return func() {
		_ = tcp.Close()
		_ = secure.Close()
		server.Stop()
		mu.Lock()
		for _, conn := range taken {
			_ = conn.Close()
		}
		mu.Unlock()
		wg.Wait()
	}
}

// TestSilentPeers: each stage of connecting has a limit of 10 s, and nobody waits
// for it but the attempt itself: the server that answers has its link at once.
func TestSilentPeers(t *testing.T) {
	authority, err := certs.New(t.TempDir(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	files, err := authority.Server("server", "localhost")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	conf := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}}
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{net: tunneltest.NewNetwork(0), secure: conf, ext: wire.AllExtensions, servers: map[string]*grpcServer{}}
		stop := silentPeers(c.net, conf)
		c.start("server0")
		c.announce(4)
		f := c.fleet(t, c.dialHost, serverlink.DirectoryConfig{Hosts: []string{"tcp", "tls", "headers", "server0"}, Port: 1,
			Lookup: func(context.Context, string) ([]string, error) { return nil, &net.DNSError{IsNotFound: true} }})
		pass(5 * interval)
		f.check(t, 1)
		if n := len(f.Status().Failures); n != 0 {
			t.Errorf("%d attempts are given up already", n)
		}
		pass(11 * time.Second)
		want := map[string]string{"tcp:1": "TLS handshake", "tls:1": "HTTP/2 stream", "headers:1": "response headers"}
		for _, failure := range f.Status().Failures {
			if stage := want[failure.Address]; stage == "" || !strings.Contains(failure.Text, stage) || !strings.Contains(failure.Text, "10s") {
				t.Errorf("%s failed: %s", failure.Address, failure.Text)
			}
			delete(want, failure.Address)
		}
		if len(want) > 0 {
			t.Errorf("not given up within 10 s: %v", want)
		}
		stop()
		f.stop()
	})
}
