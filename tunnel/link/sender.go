package link

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Errors of one tunnel's sending direction.
var (
	// ErrFinished says that Write came after Finish.
	ErrFinished = errors.New("tunnel's sending side is finished")
	// ErrAborted says that the tunnel was aborted.
	ErrAborted = errors.New("tunnel aborted")
	// ErrCredit says that a CREDIT packet granted nothing or far too much.
	ErrCredit = errors.New("credit violation")
)

// maxCredit is more than any peer has reason to grant, in bytes.
const maxCredit = 1 << 40

// queueKeep is how many payload slots an empty queue keeps.
const queueKeep = 8

// Sender is the sending direction of one tunnel. Safe for concurrent use.
type Sender struct {
	// Fixed after construction.
	link     *Link
	id       wire.ConnectionID
	infinite bool // the peer knows no credit

	// Guarded by link.mu.
	room     sync.Cond // Writes wait here for room
	waiting  int       // how many
	state    senderState
	credit   int64
	surplus  int64          // what is left of its share in this round; negative is a debt
	queue    []wire.Payload // from first on
	first    int
	queued   int64         // bytes in queue
	inFlight int64         // bytes being handed to the stream
	progress int64         // bytes ever handed to the stream
	trailer  []wire.Packet // goes out when queue is empty
	over     chan struct{} // closed when it has ended or was aborted; nil if nobody waits
	in       *senderList
	prev     *Sender
	next     *Sender
}

// NewSender starts the sending direction of a tunnel with that much credit in
// bytes. Without extension "credit" the peer's credit is infinite. A sender
// that was neither finished nor aborted holds nothing back when it is dropped,
// once its data has left.
func (l *Link) NewSender(id wire.ConnectionID, credit int64) *Sender {
	s := &Sender{link: l, id: id, credit: max(0, min(credit, maxCredit))}
	if !l.cfg.Extensions.Has(wire.ExtCredit) {
		s.infinite, s.credit = true, math.MaxInt64
	}
	s.room.L = &l.mu
	return s
}

// Write queues p behind what was written before; it blocks while the tunnel's
// own queue is full (a payload larger than the whole queue is taken when the
// queue is empty). On an idle link with extension "credit" it sends p itself
// instead and blocks while the stream does. It takes ownership of p. The error
// is ErrFinished, ErrAborted or the link's. An empty p is dropped.
func (s *Sender) Write(p wire.Payload) error {
	l := s.link
	l.mu.Lock()
	defer l.mu.Unlock()
	err := s.waitRoom(int64(p.Len()))
	sent := false
	for err == nil && p.Len() > 0 && s.mayInline() {
		s.inline(p.Split(min(p.Len(), MaxData, int(s.credit))))
		sent, err = true, s.writable()
	}
	switch {
	case p.Len() == 0 && sent:
		return l.err // what happened to the tunnel meanwhile is for the next Write
	case p.Len() == 0 || err != nil:
		p.Free()
		return err
	case sent:
		s.unshift(p) // before what another Write may have queued meanwhile
	default:
		s.push(p)
	}
	if s.in == nil {
		s.enlist()
	}
	return nil
}

// inline sends p, at most MaxData and the credit, on the caller's goroutine. mu
// is held, but not while the stream takes p.
func (s *Sender) inline(p wire.Payload) {
	s.link.packet = wire.Packet{Type: wire.Data, ConnectionID: s.id, Payload: p}
	s.launch(int64(p.Len())) // nobody else wants the link, so this costs no share
	_ = s.link.transmit(s)   // its error is the link's
}

// mayInline reports whether a Write may use the stream at once: only when that
// overtakes nobody. A peer without credit may stop reading for long, and then
// the caller would hang with the link. mu is held.
func (s *Sender) mayInline() bool {
	l := s.link
	return s.credit > 0 && !s.infinite && l.running && !l.sending && s.queued == 0 && !l.hasWork()
}

// waitRoom waits until n more bytes may be queued. mu is held.
func (s *Sender) waitRoom(n int64) error {
	for {
		if err := s.writable(); err != nil {
			return err
		}
		if held := s.queued + s.inFlight; held == 0 || held+n <= s.link.cfg.SenderQueue {
			return nil
		}
		s.waiting++
		s.room.Wait()
		s.waiting--
	}
}

// writable is why the sender takes no data, nil if it does. mu is held.
func (s *Sender) writable() error {
	switch {
	case s.link.err != nil:
		return s.link.err
	case s.state == senderAborted:
		return ErrAborted
	case s.state != senderOpen:
		return ErrFinished
	}
	return nil
}

// AddCredit adds what a CREDIT packet granted. A grant of nothing, or one that
// makes the sum absurd, is ErrCredit and changes nothing. Without extension
// "credit" it does nothing. Never blocks.
func (s *Sender) AddCredit(n int64) error {
	if s.infinite {
		return nil
	}
	l := s.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if n <= 0 || s.credit > maxCredit-n {
		return fmt.Errorf("%w: granted %d bytes on top of %d", ErrCredit, n, s.credit)
	}
	s.credit += n
	if s.in == &l.starved {
		s.enlist()
	}
	return nil
}

// Finish queues p behind all data: HALF_CLOSE ends the data, CLOSE_REQ or
// CLOSE_RSP ends the sender. Later calls do nothing. Never blocks.
func (s *Sender) Finish(p wire.Packet) {
	event := eventClose
	if p.Type == wire.HalfClose {
		event = eventHalfClose
	}
	if !permitted(s.link.cfg.Extensions, p.Type) {
		return
	}
	strip(s.link.cfg.Extensions, &p)
	l := s.link
	l.mu.Lock()
	after := next(s.state, event)
	if l.err != nil || after == s.state {
		l.mu.Unlock()
		return
	}
	s.state = after
	s.trailer = append(s.trailer, p)
	overflow := s.drained()
	if s.waiting > 0 {
		s.room.Broadcast()
	}
	l.mu.Unlock()
	l.killIf(overflow)
}

// Abort drops queued data, unblocks Write and, if p is not nil, queues p as a
// control packet. It ends the sender; on one that has ended it does nothing.
// Never blocks.
func (s *Sender) Abort(p *wire.Packet) {
	l := s.link
	l.mu.Lock()
	if l.err != nil || next(s.state, eventAbort) == s.state {
		l.mu.Unlock()
		return
	}
	s.end(eventAbort)
	var overflow error
	if p != nil && permitted(l.cfg.Extensions, p.Type) {
		q := *p
		strip(l.cfg.Extensions, &q)
		overflow = l.enqueue(q)
	}
	l.mu.Unlock()
	l.killIf(overflow)
}

// Queued is the number of bytes accepted but not yet handed to the stream.
func (s *Sender) Queued() int64 {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	return s.queued + s.inFlight
}

// Progress is the number of bytes ever handed to the stream.
func (s *Sender) Progress() int64 {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	return s.progress
}
