package tunneltest

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Server is a scripted server: it takes streams of either service, and the test
// plays its part on each.
type Server struct {
	t       testing.TB
	grpc    *grpc.Server
	streams chan *ServerPeer
}

// ServerPeer is the server's end of one stream.
type ServerPeer struct {
	*Peer
	Method  string          // ProxyMethod or ConnectMethod
	Headers metadata.MD     // the request's
	Agent   link.AgentHello // what an agent said, on ConnectMethod

	stream grpc.ServerStream
	end    chan error // what the handler returns
}

// Serve serves on l until Stop or the end of the test. Streams wait for
// AcceptAgent or AcceptClient, and for their headers, as long as the test likes.
func Serve(t testing.TB, l net.Listener, opts ...grpc.ServerOption) *Server {
	t.Helper()
	s := &Server{t: t, streams: make(chan *ServerPeer, 1000)}
	all := append([]grpc.ServerOption{
		grpc.ForceServerCodecV2(codec{}),
		grpc.UnknownServiceHandler(s.handle),
		grpc.WaitForHandlers(true),
	}, opts...)
	s.grpc = grpc.NewServer(all...)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.grpc.Serve(l)
	}()
	t.Cleanup(func() {
		s.Stop()
		<-served
	})
	return s
}

// Stop ends everything at once: streams and connections break.
func (s *Server) Stop() { s.grpc.Stop() }

// GoAway tells every connection that no more streams are taken; those that are
// open go on. It returns at once.
func (s *Server) GoAway() { go s.grpc.GracefulStop() }

func (s *Server) handle(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	md, _ := metadata.FromIncomingContext(stream.Context())
	p := &ServerPeer{Method: method, Headers: md, stream: stream, end: make(chan error, 1)}
	if method == ConnectMethod {
		hello, err := link.ParseAgentHello(md)
		if err != nil {
			return status.Error(codes.Unknown, err.Error())
		}
		p.Agent = hello
	}
	s.streams <- p
	select {
	case err := <-p.end:
		return err
	case <-stream.Context().Done():
		return status.FromContextError(stream.Context().Err()).Err()
	}
}

// accept waits for the next stream.
func (s *Server) accept(method string) *ServerPeer {
	s.t.Helper()
	timer := time.NewTimer(Patience)
	defer timer.Stop()
	select {
	case p := <-s.streams:
		if p.Method != method {
			s.t.Fatalf("got a stream of %s, want one of %s", p.Method, method)
		}
		p.Peer = startPeer(s.t, p.stream, func() { p.End(status.Error(codes.Unavailable, "closed by the test")) })
		return p
	case <-timer.C:
		s.t.Fatalf("no stream of %s within %v", method, Patience)
	}
	return nil
}

// AcceptAgent waits for an agent and answers it at once: with the extensions of
// hello that the agent listed too. A hello without any is an old server's.
func (s *Server) AcceptAgent(hello link.ServerHello) *ServerPeer {
	s.t.Helper()
	p := s.AcceptSilently()
	hello.Extensions = link.Answer(hello.Extensions, p.Agent.Extensions)
	p.SendHeaders(hello.Metadata())
	return p
}

// AcceptSilently waits for an agent and leaves it without an answer.
func (s *Server) AcceptSilently() *ServerPeer {
	s.t.Helper()
	return s.accept(ConnectMethod)
}

// AcceptClient waits for a client and, if it listed any extensions, answers with
// those that it and ext have in common.
func (s *Server) AcceptClient(ext wire.Extensions) *ServerPeer {
	s.t.Helper()
	p := s.accept(ProxyMethod)
	if link.Offered(p.Headers) != 0 && ext != 0 {
		p.SendHeaders(link.ExtensionsMetadata(link.Answer(ext, link.Offered(p.Headers))))
	}
	return p
}

// Waiting is the number of streams that wait to be accepted.
func (s *Server) Waiting() int { return len(s.streams) }

// SendHeaders sends response headers, any.
func (p *ServerPeer) SendHeaders(md metadata.MD) {
	p.t.Helper()
	if err := p.stream.SendHeader(md); err != nil {
		p.t.Fatalf("sending headers: %v", err)
	}
}

// End ends the stream with a status; nil is an orderly end.
func (p *ServerPeer) End(err error) {
	select {
	case p.end <- err:
	default:
	}
}

// Context is the stream's context.
func (p *ServerPeer) Context() context.Context { return p.stream.Context() }
