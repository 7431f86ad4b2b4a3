package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/emptypb"
)

type rawConner interface{ RawConn() net.Conn }

// service answers every call with silence, after it has said who called.
func service(called chan<- *peer.Peer) grpc.ServerOption {
	return grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		p, _ := peer.FromContext(s.Context())
		called <- p
		return s.RecvMsg(&emptypb.Empty{})
	})
}

func TestCredentialsGiveTheRawConn(t *testing.T) {
	p := newPKI(t, "ca")
	for _, tt := range []struct {
		name           string
		server, client credentials.TransportCredentials
		certificates   int
	}{
		{"TLS", mustServer(t, p.serverConfig()).Credentials(), mustClient(t, p.clientConfig()).Credentials(), 1},
		{"cleartext", Cleartext(), Cleartext(), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, err := ListenUnix(t.Context(), socketPath(t), true)
			if err != nil {
				t.Fatal(err)
			}
			called := make(chan *peer.Peer, 1)
			server := grpc.NewServer(grpc.Creds(tt.server), service(called))
			go server.Serve(l)
			defer server.Stop()
			conn, err := grpc.NewClient("unix://"+l.Addr().String(), grpc.WithTransportCredentials(tt.client))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/x/y")
			if err != nil {
				t.Fatal(err)
			}
			who := <-called
			raw, ok := who.AuthInfo.(rawConner)
			if !ok {
				t.Fatalf("no raw connection in %T", who.AuthInfo)
			}
			if _, ok := raw.RawConn().(*net.UnixConn); !ok {
				t.Errorf("raw connection is a %T", raw.RawConn())
			}
			if c, ok := who.AuthInfo.(TLSAuthInfo); ok && len(c.PeerCertificates()) != tt.certificates {
				t.Errorf("%d peer certificates", len(c.PeerCertificates()))
			}
			raw.RawConn().Close()
			if err := stream.RecvMsg(&emptypb.Empty{}); err == nil {
				t.Error("the stream lives on without its connection")
			}
		})
	}
}

// COMPAT 1.4: a client of a gRPC port that does not offer h2 gets a finished
// handshake and an immediate close.
func TestCredentialsWithoutH2(t *testing.T) {
	p := newPKI(t, "ca")
	creds := mustServer(t, p.serverConfig()).Credentials()
	for _, offer := range [][]string{nil, {"http/1.1"}, {"foo", "bar"}, {"foo", "h2"}} {
		l, err := ListenTCP(t.Context(), "127.0.0.1:0", TCPOptions{})
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer(grpc.Creds(creds))
		go server.Serve(l)
		cfg := mustClient(t, p.clientConfig()).Config()
		cfg.NextProtos = offer
		conn, err := tls.Dial("tcp", l.Addr().String(), cfg)
		if err != nil {
			t.Fatalf("%q: handshake: %v", offer, err)
		}
		conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, err = conn.Read(make([]byte, 1))
		if last := len(offer) - 1; last >= 0 && offer[last] == "h2" {
			if err != nil || conn.ConnectionState().NegotiatedProtocol != "h2" {
				t.Errorf("%q: %v, protocol %q", offer, err, conn.ConnectionState().NegotiatedProtocol)
			}
		} else if !errors.Is(err, io.EOF) {
			t.Errorf("%q: %v, want a close", offer, err)
		}
		conn.Close()
		server.Stop()
	}
}

// hello runs the client's handshake against a listener that only listens.
func hello(t *testing.T, c *ClientTLS, authority string, server *tls.Config) (*tls.ClientHelloInfo, error) {
	t.Helper()
	var info *tls.ClientHelloInfo
	cfg := server.Clone()
	inner := cfg.GetConfigForClient
	cfg.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		info = h
		return inner(h)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		far, err := l.Accept()
		if err != nil {
			return
		}
		defer far.Close()
		tc := tls.Server(far, cfg)
		if tc.Handshake() == nil {
			io.Copy(io.Discard, tc)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, _, err := c.Credentials().ClientHandshake(ctx, authority, near)
	if err == nil {
		conn.Close()
	}
	near.Close()
	<-done
	return info, err
}

func TestClientCredentials(t *testing.T) {
	p := newPKI(t, "ca")
	server := mustServer(t, p.serverConfig())
	for _, tt := range []struct {
		name      string
		server    string // ServerName
		authority string
		protocols []string
		wantSNI   string
		ok        bool
	}{
		{"name", "proxy.example", "127.0.0.1:8091", nil, "proxy.example", true},
		{"name of the authority", "", "proxy.example:8091", nil, "proxy.example", true},
		{"address, no SNI", "127.0.0.1", "127.0.0.1:8091", nil, "", true},
		{"wrong name", "other.example", "127.0.0.1:8091", nil, "other.example", false},
		{"more protocols", "proxy.example", "", []string{"foo", "bar", "h2"}, "proxy.example", true},
		{"no protocol in common", "proxy.example", "", []string{"foo"}, "proxy.example", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := p.clientConfig()
			cfg.ServerName, cfg.Protocols = tt.server, tt.protocols
			c := mustClient(t, cfg)
			info, err := hello(t, c, tt.authority, server.Config())
			if (err == nil) != tt.ok {
				t.Fatal(err)
			}
			if info.ServerName != tt.wantSNI {
				t.Errorf("SNI %q, want %q", info.ServerName, tt.wantSNI)
			}
			want := tt.protocols
			if want == nil {
				want = []string{"h2"}
			}
			if len(info.SupportedProtos) != len(want) || info.SupportedProtos[0] != want[0] {
				t.Errorf("ALPN %q, want %q", info.SupportedProtos, want)
			}
		})
	}
}

func TestClientTLSReloads(t *testing.T) {
	p, other := newPKI(t, "ca"), newPKI(t, "other")
	server := mustServer(t, p.serverConfig())
	c := mustClient(t, p.clientConfig())
	if _, err := hello(t, c, "", server.Config()); err != nil {
		t.Fatal(err)
	}
	ca := read(t, p.CA())
	client := mustServer(t, func() ServerTLSConfig { s := p.serverConfig(); s.ClientCAFile = ""; return s }())
	replace(t, p.CA(), read(t, other.CA()))
	if _, err := hello(t, c, "", client.Config()); err == nil {
		t.Error("a server of the removed CA was trusted")
	}
	replace(t, p.CA(), ca)
	if _, err := hello(t, c, "", client.Config()); err != nil {
		t.Error(err)
	}
}

func TestFilesAreLookedAtOncePerInterval(t *testing.T) {
	p := newPKI(t, "ca")
	synctest.Test(t, func(t *testing.T) {
		cfg := p.serverConfig()
		cfg.CheckInterval = 0 // the default, 1 s
		reports := 0
		cfg.Report = func(error) { reports++ }
		s := mustServer(t, cfg)
		before := s.state.get()
		replace(t, p.server.Cert, append([]byte("# again\n"), read(t, p.server.Cert)...))
		<-time.After(DefaultCheckInterval - 1)
		if s.state.get() != before || reports != 0 {
			t.Error("looked at the files too early")
		}
		<-time.After(1)
		if s.state.get() == before || reports != 1 {
			t.Error("did not look at the files")
		}
	})
}
