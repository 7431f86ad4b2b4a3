package frontgrpc

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/culvert-proxy/culvert/internal/server/relay"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Texts that clients are sent; the first four are the protocol's own. COMPAT 1.7.
const (
	textNoAgent       = "No agent available"
	textDialTimeout   = "timed out waiting for backend dial"
	textNotDialed     = "backend not initialized"
	textNothingToShut = "backend uninitialized"
	textMismatched    = "mismatched connection IDs"

	textSecondDial = "a stream carries one connection, and this one has dialled already"
	textNoPayload  = "a packet does not carry what its type says"
	textEarlyData  = "data before the dial was answered"
	textEarlyClose = "close before the dial was answered"
	textLateData   = "data after half-close"
)

// apply is the reader's switch. done means that a stream without a tunnel is
// finished; err is then its status. What a client may not send and types that
// nobody knows are counted and otherwise passed over. COMPAT 1.6.
func (s *session) apply(p *wire.Packet) (done bool, err error) {
	if !s.now().listens() {
		p.Payload.Free()
		return false, nil
	}
	switch p.Type {
	case wire.DialRequest:
		return s.dialRequest(p)
	case wire.Data:
		return s.data(p)
	case wire.HalfClose:
		return s.halfClose(p)
	case wire.CloseRequest:
		return s.closeRequest(p)
	case wire.DialClose:
		return s.dialClose(p)
	}
	p.Payload.Free()
	return false, nil
}

// dialRequest opens the stream's one tunnel.
func (s *session) dialRequest(p *wire.Packet) (bool, error) {
	if p.Mismatched {
		return s.violation(textNoPayload)
	}
	if s.now() != fresh {
		return s.violation(textSecondDial, wire.Packet{Type: wire.DialResponse, DialID: p.DialID, Error: textSecondDial, Reason: wire.ReasonProtocolError})
	}
	s.dialID = p.DialID
	switch p.Protocol {
	case "tcp", "tcp4", "tcp6":
	default: // old agents would dial anything, sockets on their node among it
		s.Failed(&wire.DialError{Reason: wire.ReasonProtocol, Err: errors.New("protocol not supported: " + p.Protocol)})
		return false, nil
	}
	s.advance(dialRequested)
	tun := s.srv.relay.Open(s.lost, relay.Request{
		DialID:       p.DialID,
		Protocol:     p.Protocol,
		Address:      p.Address,
		CanHalfClose: s.ext.Has(wire.ExtHalfClose),
		Frontend:     Name,
	}, s)
	s.tun = tun
	// The reader may be waiting for the endpoint when the client goes, or read no
	// more after a close.
	context.AfterFunc(s.stream.Context(), func() {
		if s.now() != over {
			tun.Abort(wire.ReasonAborted, "client's stream ended")
		}
	})
	s.label()
	return false, nil
}

// data passes data on to the tunnel, and waits while that takes none.
func (s *session) data(p *wire.Packet) (bool, error) {
	payload := p.Payload
	p.Payload = wire.Payload{}
	if ok, done, err := s.check(p, textEarlyData, textNotDialed); !ok {
		payload.Free()
		return done, err
	}
	if !s.now().takesData() {
		payload.Free()
		if s.now() == halfClosed {
			return s.violation(textLateData)
		}
		return false, nil // the tunnel is over; so is the stream, in a moment
	}
	s.spoke()
	if payload.Len() == 0 {
		payload.Free()
		return false, nil
	}
	// An error means that the tunnel has ended; its goroutine tells the client.
	_ = s.tun.Write(payload)
	return false, nil
}

// halfClose tells the tunnel that the client sends no more. Without the extension
// it is a packet that nobody knows.
func (s *session) halfClose(p *wire.Packet) (bool, error) {
	if !s.ext.Has(wire.ExtHalfClose) {
		return false, nil
	}
	if ok, done, err := s.check(p, textEarlyClose, textNothingToShut); !ok {
		return done, err
	}
	if s.advance(writeClosed) == open {
		s.spoke()
		s.tun.CloseWrite()
	}
	return false, nil
}

// closeRequest starts the orderly close, or tells that the client has lost what
// it was sent first. After an orderly close nothing the client sends matters any
// more; the tunnel's goroutine answers when the agent has, or cannot.
func (s *session) closeRequest(p *wire.Packet) (bool, error) {
	if s.now() == fresh && !p.Mismatched {
		if p.ConnectionID == 0 {
			return false, nil
		}
		// The stream stays usable.
		return false, s.answer(wire.Packet{Type: wire.CloseResponse, ConnectionID: p.ConnectionID, Error: textNothingToShut})
	}
	if ok, done, err := s.check(p, textEarlyClose, textNothingToShut); !ok {
		return done, err
	}
	if s.lossReported() {
		return false, nil
	}
	s.advance(closeAccepted)
	s.tun.Close()
	return false, nil
}

// dialClose cancels the dial that it names. One that was established meanwhile
// goes too: the client has given it up and will not use it.
func (s *session) dialClose(p *wire.Packet) (bool, error) {
	if p.Mismatched {
		return s.violation(textNoPayload)
	}
	if s.tun != nil && p.DialID == s.dialID {
		s.advance(givenUp)
		s.tun.Abort(wire.ReasonCanceled, "dial cancelled by the client")
	}
	return false, nil
}

// check is what all packets for a connection have in common. ok means that the
// packet names this stream's own connection; else the other results are apply's.
// A packet for connection 0 is passed over. early is the text for a packet that
// comes before the dial was answered, answer the one its connection ID gets.
func (s *session) check(p *wire.Packet, early, answer string) (ok, done bool, err error) {
	if p.Mismatched {
		done, err = s.violation(textNoPayload)
		return false, done, err
	}
	if p.ConnectionID == 0 {
		return false, false, nil
	}
	s.mu.Lock()
	stage, conn := s.stage, s.conn
	s.mu.Unlock()
	rsp := wire.Packet{Type: wire.CloseResponse, ConnectionID: p.ConnectionID, Error: answer, Reason: wire.ReasonProtocolError}
	switch {
	case conn == 0 && stage != over:
		done, err = s.violation(early, rsp)
	case conn != 0 && p.ConnectionID != conn:
		rsp.Error = textMismatched
		done, err = s.violation(textMismatched, rsp)
	default:
		return true, false, nil
	}
	return false, done, err
}

// violation ends a stream whose client breaks the protocol: with answers first,
// for the IDs that it used wrongly, and then the tunnel's own, if there is one.
func (s *session) violation(text string, answers ...wire.Packet) (bool, error) {
	if s.tun != nil {
		s.mu.Lock()
		s.extra = answers
		s.stage = next(s.stage, givenUp)
		s.mu.Unlock()
		s.tun.Abort(wire.ReasonProtocolError, text)
		return false, nil
	}
	for _, p := range answers {
		if err := s.answer(p); err != nil {
			return true, err
		}
	}
	if len(answers) == 0 {
		return true, status.Error(codes.InvalidArgument, text)
	}
	return true, nil
}

// answer sends p on a stream that has no tunnel.
func (s *session) answer(p wire.Packet) error {
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	return s.send(p)
}
