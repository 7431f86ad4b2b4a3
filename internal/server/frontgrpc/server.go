package frontgrpc

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/culvert-proxy/culvert/internal/server/relay"
	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Name is what this frontend is called in logs and metrics.
const Name = "grpc"

// Sizes of the frontends' gRPC server, in bytes.
const (
	// streamWindow is the HTTP/2 window of a stream: what a client may send
	// before this server's reader has taken it. Clients are near; the long way is
	// behind the server, under credit.
	streamWindow = 256 << 10
	// connWindow is that of a connection. gRPC gives it back as data arrives, so
	// a stuck stream takes nothing from its neighbours.
	connWindow = 1 << 20
	// Buffers are small, because there is a connection per tunnel. Payloads pass
	// through neither, but for a first piece of what is read.
	readBuffer  = 4 << 10
	writeBuffer = 32 << 10
	maxHeaders  = 64 << 10
)

// lossGrace is for how long a stream that is lost may still be read: what a client
// sent just before it went, a CLOSE_REQ for instance, has arrived and counts.
const lossGrace = 50 * time.Millisecond

// handshakeTimeout bounds a connection's TLS and HTTP/2 handshakes together.
const handshakeTimeout = 20 * time.Second

// Config is what the frontend is told.
type Config struct {
	// ServerID is for profiles.
	ServerID string
	// Extensions are those that this server offers; only link.ClientExtensions
	// of them mean anything here.
	Extensions wire.Extensions
}

// Observer is told what happens, for metrics. Its methods must not block. Packets
// are told of through the embedded interface; ReceiveFailed is called at every
// end of a stream that the client brings about, with io.EOF for an orderly one.
type Observer interface {
	link.Observer
	// StreamOpened is called with +1 and -1 as Proxy streams come and go.
	StreamOpened(delta int)
}

// tunnel is what a session needs of *relay.Tunnel.
type tunnel interface {
	Write(p wire.Payload) error
	CloseWrite()
	Close()
	Abort(reason wire.Reason, text string)
	Detached() <-chan struct{}
}

// Server is the frontend. Safe for concurrent use.
type Server struct {
	// Fixed after construction.
	cfg   Config
	relay *relay.Relay
	obs   Observer
	pace  pace
}

// New returns a frontend that opens its tunnels on r. obs may be nil.
func New(cfg Config, r *relay.Relay, obs Observer) *Server {
	if obs == nil {
		obs = nopObserver{}
	}
	return &Server{cfg: cfg, relay: r, obs: obs}
}

// ServerOptions are the gRPC options that the frontend needs; the credentials
// are the caller's. inner may be nil: gRPC takes only one tap, so a caller that
// has its own passes it here.
func ServerOptions(kp keepalive.ServerParameters, policy keepalive.EnforcementPolicy, inner tap.ServerInHandle) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(link.Codec{}),
		grpc.InTapHandle(link.Tap(lossGrace, inner)),
		grpc.KeepaliveParams(kp),
		grpc.KeepaliveEnforcementPolicy(policy),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.ReadBufferSize(readBuffer),
		grpc.WriteBufferSize(writeBuffer),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.WaitForHandlers(true),
	}
}

// Register adds the service to a gRPC server, which must have been made with
// ServerOptions. The service has no package name and no registered descriptor:
// the public client brings its own of the same name. COMPAT 1.1.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	r.RegisterService(&grpc.ServiceDesc{
		ServiceName: "ProxyService",
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{
			StreamName:    "Proxy",
			Handler:       func(_ any, stream grpc.ServerStream) error { return s.proxy(stream) },
			ServerStreams: true,
			ClientStreams: true,
		}},
	}, s)
}

// proxy is the life of one stream.
func (s *Server) proxy(stream grpc.ServerStream) error {
	s.obs.StreamOpened(+1)
	defer s.obs.StreamOpened(-1)
	ctx := stream.Context()
	lost, cancel, ok := link.Tapped(ctx)
	if !ok {
		return status.Error(codes.Internal, "the frontend's tap is not installed")
	}
	defer cancel()
	ss := &session{srv: s, stream: stream, lost: lost, cancel: cancel}
	md, _ := metadata.FromIncomingContext(ctx)
	if offered := link.Offered(md); offered != 0 && s.cfg.Extensions != 0 {
		ss.ext = link.Answer(s.cfg.Extensions&link.ClientExtensions, offered)
		if err := stream.SendHeader(link.ExtensionsMetadata(ss.ext)); err != nil {
			return err
		}
	}
	if ss.ext == 0 {
		ss.first.pace = &s.pace
	}
	return ss.read()
}

type nopObserver struct{}

func (nopObserver) Sent(wire.PacketType)              {}
func (nopObserver) SendFailed(wire.PacketType, error) {}
func (nopObserver) Received(wire.PacketType)          {}
func (nopObserver) ReceiveFailed(error)               {}
func (nopObserver) StreamOpened(int)                  {}
