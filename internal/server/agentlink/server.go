package agentlink

import (
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/culvert-proxy/culvert/internal/server/relay"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Server takes in agents' links. Safe for concurrent use.
type Server struct {
	// Fixed after construction.
	cfg    Config
	count  func() int
	relay  *relay.Relay
	router Router
	auth   Authenticator
	obs    Observer
	log    klog.Logger

	mu sync.Mutex
	// Guarded by mu.
	links    map[string][]*agentLink // live ones by agent ID, in the order in which they came
	draining bool
}

// New returns a server without links. count is the number of servers that new
// agents are told; it must not block. auth nil lets every agent in, obs may be
// nil.
func New(cfg Config, count func() int, r *relay.Relay, router Router, auth Authenticator, obs Observer) *Server {
	if cfg.JoinDelay <= 0 {
		cfg.JoinDelay = DefaultJoinDelay
	}
	if cfg.AuthTimeout <= 0 {
		cfg.AuthTimeout = DefaultAuthTimeout
	}
	if obs == nil {
		obs = NopObserver{}
	}
	return &Server{
		cfg:    cfg,
		count:  count,
		relay:  r,
		router: router,
		auth:   auth,
		obs:    obs,
		log:    cfg.Logger,
		links:  map[string][]*agentLink{},
	}
}

// Register adds the agents' service to a gRPC server, which must have been made
// with ServerOptions. The service has no package name and no registered
// descriptor: the public client brings its own of the same name. COMPAT 1.1.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	r.RegisterService(&grpc.ServiceDesc{
		ServiceName: "AgentService",
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{
			StreamName:    "Connect",
			Handler:       func(_ any, stream grpc.ServerStream) error { return s.connect(stream) },
			ServerStreams: true,
			ClientStreams: true,
		}},
	}, s)
}

// connect is the life of one link.
func (s *Server) connect(stream grpc.ServerStream) error {
	s.obs.StreamOpened(+1)
	defer s.obs.StreamOpened(-1)
	a, refusal := s.handshake(stream)
	if refusal != nil {
		return refusal // its stream's context ends by itself
	}
	defer a.cancel()
	written := make(chan struct{})
	go a.write(written)
	err := a.read()
	s.end(a, err, written)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err // the stream's own
	}
	return status.Error(codes.Unavailable, err.Error())
}

// end takes a out of everything it is in, in the order that the package's
// comment explains, and waits until its writer is gone.
func (s *Server) end(a *agentLink, err error, written <-chan struct{}) {
	s.leave(a)
	a.peer.Lost(err)
	a.link.Close(err)
	a.awaitWriter(written)
	if errors.Is(err, io.EOF) {
		a.log.V(1).Info("Agent ended its link")
	} else {
		a.log.V(1).Info("Agent link lost", "reason", err.Error())
	}
}

// AnnounceCount tells every agent that can be told that there are now n servers.
func (s *Server) AnnounceCount(n int) {
	s.each(func(a *agentLink) {
		a.link.Send(wire.Packet{Type: wire.ServerCount, Count: int64(n)})
	})
}

// Drain tells the agents that know of it to move on to other servers, and lets no
// new agent in. Old agents stay: nothing short of a cut would move them.
func (s *Server) Drain() {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	s.each(func(a *agentLink) {
		if a.ext.Has(wire.ExtDrain) {
			a.link.Send(wire.Packet{Type: wire.Drain})
		}
	})
}

// each calls f for every link, none of which may have ended meanwhile.
func (s *Server) each(f func(*agentLink)) {
	for _, a := range s.all() {
		f(a)
	}
}

func (s *Server) all() []*agentLink {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*agentLink
	for _, links := range s.links {
		all = append(all, links...)
	}
	return all
}
