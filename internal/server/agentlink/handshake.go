package agentlink

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/culvert-proxy/culvert/internal/server/relay"
	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// What the transport's AuthInfo offers. The names are agreed with it, since
// neither room may import the other.
type (
	rawConner   interface{ RawConn() net.Conn }
	certificate interface {
		PeerCertificates() []*x509.Certificate
	}
)

// handshake checks the agent, makes its link, and sends the response headers. An
// error is the stream's status: before the headers it is always Unknown for what
// the agent did wrong (COMPAT 1.3).
func (s *Server) handshake(stream grpc.ServerStream) (*agentLink, error) {
	ctx := stream.Context()
	hello, ids, err := s.checkAgent(ctx)
	if err != nil {
		return nil, err
	}
	raw, address := connection(ctx)
	if raw == nil {
		return nil, status.Error(codes.Internal, "the listener's credentials do not give the raw connection")
	}
	lost, cancel, ok := link.Tapped(ctx)
	if !ok {
		return nil, status.Error(codes.Internal, "the listener's tap is not installed")
	}
	a := &agentLink{
		srv:      s,
		cancel:   cancel,
		id:       identity{agentID: hello.AgentID, instance: hello.Instance, slot: hello.Slot},
		ids:      ids,
		ext:      link.Answer(s.cfg.Extensions, hello.Extensions),
		raw:      raw,
		address:  address,
		observer: &observer{Observer: s.obs},
		since:    time.Now(),
		log:      s.log.WithValues("agentID", hello.AgentID, "address", address),
	}
	a.open(stream, s.cfg.Link)
	if err := s.enter(a); err != nil {
		a.peer.Lost(err)
		return nil, err
	}
	// A link that is lost is read to its end, but takes no more dials; and its
	// reader may be waiting for an old agent's stuck tunnel.
	context.AfterFunc(lost, func() { s.retire(a) })
	context.AfterFunc(ctx, func() { a.peer.Lost(errLost) })
	// The count is read after the link can be found, so that no change is missed
	// by both the headers and AnnounceCount.
	answer := link.ServerHello{ServerID: s.cfg.ServerID, ServerCount: s.count(), Extensions: a.ext}
	if err := stream.SendHeader(answer.Metadata()); err != nil {
		s.leave(a)
		a.peer.Lost(err)
		return nil, err
	}
	a.log.V(1).Info("Agent connected", "instance", a.id.instance, "slot", a.id.slot, "extensions", a.ext, "identifiers", ids.Pairs)
	s.arm(a)
	return a, nil
}

// checkAgent reads what the agent says of itself and asks whether it may come in.
func (s *Server) checkAgent(ctx context.Context) (link.AgentHello, wire.Identifiers, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	hello, err := link.ParseAgentHello(md)
	if err != nil {
		return hello, wire.Identifiers{}, s.refuse(RefusedMetadata, hello, ctx, err)
	}
	ids, ignored, err := wire.ParsePresentedIdentifiers(hello.Identifiers)
	if err != nil {
		return hello, ids, s.refuse(RefusedMetadata, hello, ctx, err)
	}
	if err := s.authenticate(ctx, hello, ids); err != nil {
		return hello, ids, s.refuse(RefusedAuth, hello, ctx, err)
	}
	for _, i := range ignored {
		s.obs.IdentifierIgnored(i.Key)
		s.log.Info("Agent presents an identifier that cannot be used", "agentID", hello.AgentID, "identifier", i.String(), "reason", i.Err.Error())
	}
	return hello, ids, nil
}

func (s *Server) authenticate(ctx context.Context, hello link.AgentHello, ids wire.Identifiers) error {
	if s.auth == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.AuthTimeout)
	defer cancel()
	c := Candidate{AgentID: hello.AgentID, Identifiers: ids, Authorization: hello.Authorization}
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(certificate); ok {
			c.Certificates = info.PeerCertificates()
		}
		c.Address = p.Addr.String()
	}
	return s.auth.Authenticate(ctx, c)
}

func (s *Server) refuse(r Refusal, hello link.AgentHello, ctx context.Context, err error) error {
	s.obs.Refused(r)
	_, address := connection(ctx)
	s.log.Info("Agent refused", "agentID", hello.AgentID, "address", address, "reason", err.Error())
	return status.Error(codes.Unknown, err.Error())
}

// Why this server ends or refuses a link.
var (
	errLost     = errors.New("the agent's stream was lost")
	errReplaced = errors.New("the same agent has a newer link")
	errDraining = errors.New("this server is stopping")
)

// connection is the stream's raw connection, or nil, and the peer's address.
func connection(ctx context.Context) (net.Conn, string) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil, ""
	}
	if info, ok := p.AuthInfo.(rawConner); ok {
		return info.RawConn(), p.Addr.String()
	}
	return nil, p.Addr.String()
}

// open makes the link and makes it known to the relay. Nothing runs yet.
func (a *agentLink) open(stream grpc.ServerStream, cfg link.Config) {
	cfg.Stream, cfg.Extensions, cfg.Kill, cfg.Observer = stream, a.ext, a.kill, a.observer
	a.link = link.New(cfg)
	a.peer = a.srv.relay.Attach(outlet{a.link}, relay.PeerInfo{
		AgentID:  a.id.agentID,
		Instance: a.id.instance,
		Slot:     a.id.slot,
		Address:  a.address,
		Since:    a.since,
	})
	a.observer.peer = a.peer
}

// kill closes the connection below the link: a stream's trailers would queue
// behind the data that a frozen agent does not take.
func (a *agentLink) kill(error) {
	_ = a.raw.Close()
	a.cancel()
}

// outlet is a link as the relay sees it.
type outlet struct{ *link.Link }

// NewSender implements relay.Outlet.
func (o outlet) NewSender(id wire.ConnectionID, credit int64) relay.Sender {
	return o.Link.NewSender(id, credit)
}

// observer passes on what the link tells, and notes every packet, pings among
// them, as a sign of life.
type observer struct {
	Observer
	peer *relay.Peer
}

// Received implements link.Observer.
func (o *observer) Received(t wire.PacketType) {
	o.peer.Heard()
	o.Observer.Received(t)
}
