package oldpeers

import (
	"context"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// rawStream is a stream with nothing between it and the test: for headers.
type rawStream struct {
	grpc.ClientStream
	conn *grpc.ClientConn
}

// openRaw opens a stream with these headers.
func (s *stage) openRaw(target, method string, md metadata.MD, opts ...grpc.DialOption) rawStream {
	s.t.Helper()
	opts = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(s.net.Dialer("raw")),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(link.Codec{})),
	}, opts...)
	conn, err := grpc.NewClient("passthrough:///"+target, opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	ctx := metadata.NewOutgoingContext(context.Background(), md)
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		s.t.Fatal(err)
	}
	return rawStream{stream, conn}
}

// status is how a stream has ended, nil if it brings a packet first.
func (r rawStream) status() error { return r.RecvMsg(&wire.Packet{}) }

// header is what the server has answered; it fails the test if there is none.
func (r rawStream) header(t *testing.T) metadata.MD {
	t.Helper()
	md, err := r.Header()
	if err != nil {
		t.Fatal(err)
	}
	return md
}

// spy is a connection that counts the GOAWAY frames that arrive on it.
type spy struct {
	net.Conn

	mu      sync.Mutex
	head    []byte // of the next frame, as far as it has arrived
	payload int    // what is left of the present one
	goaways int
}

// frameHead is the size of an HTTP/2 frame's head; its fourth byte is the type.
const (
	frameHead  = 9
	typeGoAway = 7
)

// Read implements net.Conn.
func (s *spy) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range b[:n] {
		if s.payload > 0 {
			s.payload--
			continue
		}
		if s.head = append(s.head, x); len(s.head) < frameHead {
			continue
		}
		s.payload = int(s.head[0])<<16 | int(s.head[1])<<8 | int(s.head[2])
		if s.head[3] == typeGoAway {
			s.goaways++
		}
		s.head = s.head[:0]
	}
	return n, err
}

// goneAway is the number of GOAWAY frames so far.
func (s *spy) goneAway() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.goaways
}

// spied makes the connections of a dial function spied on; the last one is in *to.
func spied(dial tunneltest.DialFunc, to **spy) tunneltest.DialFunc {
	return func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := dial(ctx, address)
		if err != nil {
			return nil, err
		}
		*to = &spy{Conn: conn}
		return *to, nil
	}
}
