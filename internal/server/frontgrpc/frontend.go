package frontgrpc

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/culvert-proxy/culvert/internal/server/relay"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

var _ relay.Frontend = (*session)(nil)

const (
	// maxData is the most bytes in one DATA to a client. A foreign agent may send
	// more at once than a client would take.
	maxData = 64 << 10
	// partingTime is how long after its last answer an old client is given to end
	// the stream.
	partingTime = 250 * time.Millisecond
	// lastWords bounds how long an abnormal end waits for a client that does not
	// read, if the relay does not interrupt it earlier.
	lastWords = 10 * time.Second
)

// Established answers the dial. The client may use the connection as soon as the
// answer has left, so it exists for the reader before.
func (s *session) Established(id wire.ConnectionID) error {
	s.mu.Lock()
	s.conn = id
	s.stage = next(s.stage, established)
	s.first.begin()
	s.mu.Unlock()
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	return s.send(wire.Packet{Type: wire.DialResponse, DialID: s.dialID, ConnectionID: id})
}

// Failed answers the dial with an error and ends the stream. A client that gave
// the dial up itself is sent nothing.
func (s *session) Failed(err *wire.DialError) {
	if err.Reason != wire.ReasonCanceled {
		s.sendMu.Lock()
		s.sendExtra()
		_ = s.send(wire.Packet{Type: wire.DialResponse, DialID: s.dialID, Error: dialText(err), Reason: err.Reason})
		s.sendMu.Unlock()
	}
	s.finish()
}

// dialText is what clients without the extension "reason" have to go by.
func dialText(err *wire.DialError) string {
	switch err.Reason {
	case wire.ReasonNoAgent:
		return textNoAgent
	case wire.ReasonBackendTimeout:
		return textDialTimeout
	}
	return err.Error()
}

// Write sends data. An empty DATA is never sent: the public client library takes
// it for the end.
func (s *session) Write(p wire.Payload) error {
	if p.Len() == 0 {
		p.Free()
		return nil
	}
	if err := s.sendFirst(&p); err != nil || p.Len() == 0 {
		p.Free()
		return err
	}
	if err := s.turn(); err != nil {
		p.Free()
		return err
	}
	defer s.sendMu.Unlock()
	if s.gapAhead() {
		p.Free()
		return nil
	}
	for p.Len() > 0 {
		chunk := p.Split(maxData)
		err := s.send(wire.Packet{Type: wire.Data, ConnectionID: s.conn, Payload: chunk})
		chunk.Free()
		if err != nil {
			p.Free()
			return err
		}
	}
	return nil
}

// CloseWrite tells the client that no more data comes.
func (s *session) CloseWrite() error {
	if err := s.turn(); err != nil {
		return err
	}
	defer s.sendMu.Unlock()
	return s.send(wire.Packet{Type: wire.HalfClose, ConnectionID: s.conn})
}

// Close sends the last packet and ends the stream. An orderly end waits behind
// the data for a client that is slow, as Write does, until the client is gone or
// Interrupt is called; an abnormal one does not wait long.
func (s *session) Close(end relay.End) {
	if end.Abnormal() {
		t := time.AfterFunc(lastWords, s.cancel)
		defer t.Stop()
	}
	if s.turn() == nil {
		s.sendExtra()
		_ = s.send(wire.Packet{Type: wire.CloseResponse, ConnectionID: s.conn, Error: endText(end), Reason: end.Reason})
		s.sendMu.Unlock()
	}
	s.finish()
}

// endText is what clients without the extension "reason" have to go by. The loss
// of the agent has no text: old clients know it that way. COMPAT 9.1.
func endText(end relay.End) string {
	switch {
	case end.Reason == wire.ReasonLinkLost:
		return ""
	case end.Text == "" && end.Abnormal():
		return end.Reason.String()
	}
	return end.Text
}

// Interrupt frees whoever waits for the client.
func (s *session) Interrupt() { s.cancel() }

// finish comes behind the last answer. A client of ours has its stream ended at
// once. An old one ends it by itself; if the end overtook its own, it might take
// that for the answer.
func (s *session) finish() {
	s.mu.Lock()
	s.stage = next(s.stage, finished)
	waits := s.ext == 0 && s.lost.Err() == nil
	if waits {
		s.parting = time.AfterFunc(partingTime, s.endStream)
	}
	s.mu.Unlock()
	if !waits {
		s.endStream()
	}
}

// endStream gives the stream its status, behind all that was sent, and frees the
// reader. gRPC's own stream can do both at once; if this version's cannot, the
// status is CANCELLED, which a client that has its answer does not look at.
func (s *session) endStream() {
	ts := grpc.ServerTransportStreamFromContext(s.stream.Context())
	if w, ok := ts.(interface {
		WriteStatus(st *status.Status) error
	}); ok {
		_ = w.WriteStatus(status.New(codes.OK, "")) // a stream that is gone needs none
	}
	s.cancel()
}

// sendExtra sends the answers that a violation left. sendMu is held.
func (s *session) sendExtra() {
	s.mu.Lock()
	extra := s.extra
	s.extra = nil
	s.mu.Unlock()
	for _, p := range extra {
		_ = s.send(p) // the next one fails too
	}
}

// send sends p, which keeps its payload. sendMu is held.
func (s *session) send(p wire.Packet) error {
	if !s.ext.Has(wire.ExtReason) {
		p.Reason = wire.ReasonNone
	}
	s.out = p
	err := s.stream.SendMsg(&s.out)
	s.out = wire.Packet{}
	if err != nil {
		s.srv.obs.SendFailed(p.Type, err)
		return err
	}
	s.srv.obs.Sent(p.Type)
	return nil
}
