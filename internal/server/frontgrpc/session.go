package frontgrpc

import (
	"context"
	"errors"
	"io"
	"runtime/pprof"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// session is one Proxy stream and the one tunnel that it may carry.
type session struct {
	// Fixed after construction.
	srv    *Server
	stream grpc.ServerStream
	lost   context.Context    // ends when the stream is lost or finished
	cancel context.CancelFunc // frees RecvMsg and SendMsg
	ext    wire.Extensions    // negotiated

	// Fixed when the tunnel is opened.
	dialID wire.DialID

	// Owned by the reader.
	tun tunnel // nil until then
	in  wire.Packet

	// sendMu is held while something is sent, and is taken before mu.
	sendMu sync.Mutex
	// Guarded by sendMu.
	out wire.Packet

	mu sync.Mutex
	// Guarded by mu.
	stage stage
	conn  wire.ConnectionID // 0 until established
	extra []wire.Packet     // answers to send before the last one
	first firstBytes
	// parting ends the stream if the client does not after its last answer.
	parting *time.Timer
}

// read is the reader: it reads and applies until the stream ends, and returns the
// stream's status. It returns only when the tunnel no longer uses the stream.
func (s *session) read() error {
	s.label()
	defer s.settle()
	for {
		if err := s.stream.RecvMsg(&s.in); err != nil {
			return s.ended(err)
		}
		s.srv.obs.Received(s.in.Type)
		if done, err := s.apply(&s.in); done {
			return err
		}
	}
}

// ended reacts to the end of the client's packets. Without a CLOSE_REQ before it
// even an orderly end of the stream (END_STREAM) is a loss. COMPAT 1.7.
func (s *session) ended(err error) error {
	if s.now() == over {
		return nil // the tunnel's goroutine has ended the stream
	}
	s.srv.obs.ReceiveFailed(err)
	orderly := errors.Is(err, io.EOF)
	if s.tun != nil && (!orderly || s.now() != closing) {
		s.tun.Abort(wire.ReasonAborted, "client's stream ended: "+err.Error())
	}
	if orderly {
		return nil
	}
	return err
}

// settle waits until the tunnel no longer uses the stream, and drops what is left.
func (s *session) settle() {
	if s.tun != nil {
		<-s.tun.Detached()
	}
	s.in.Payload = wire.Payload{}
	s.mu.Lock()
	s.stage = next(s.stage, finished)
	s.first.on(ruleOver)
	if s.parting != nil {
		s.parting.Stop()
	}
	s.mu.Unlock()
}

// now is the present stage.
func (s *session) now() stage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stage
}

// advance moves the session on and returns the stage it was in.
func (s *session) advance(e event) stage {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.stage
	s.stage = next(was, e)
	return was
}

// label names the calling goroutine in profiles, as well as it is known by now.
func (s *session) label() {
	labels := []string{"goroutine", "frontgrpc reader", "serverID", s.srv.cfg.ServerID}
	if s.tun != nil {
		labels = append(labels, "dialID", strconv.FormatInt(int64(s.dialID), 10))
	}
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(labels...)))
}
