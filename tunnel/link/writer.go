package link

import (
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Run is the writer: it sends until the link ends, and returns the link's
// error. When it has returned nobody uses the stream's SendMsg any more, nor
// will. With extension "ping" it starts the pings and the watch for silence.
// Call it once.
func (l *Link) Run() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = true
	l.startLiveness()
	for {
		for l.sending || l.err == nil && !l.hasWork() {
			l.work.Wait()
		}
		if l.err != nil {
			l.running = false
			return l.err
		}
		s, overflow := l.nextPacket()
		if overflow != nil {
			l.mu.Unlock()
			l.Kill(overflow)
			l.mu.Lock()
		}
		_ = l.transmit(s) // its error is the link's
	}
}

// hasWork reports whether anything can be sent. mu is held.
func (l *Link) hasWork() bool { return !l.out.empty() || !l.ring.empty() }

// nextPacket takes what is sent next into l.packet; for DATA it returns the
// sender that it came from. mu is held, and there is work.
func (l *Link) nextPacket() (*Sender, error) {
	if l.out.pop(&l.packet) {
		if l.packet.Type == wire.Ping {
			l.stampPing(&l.packet)
		}
		return nil, nil
	}
	s := l.ring.pick()
	p := s.take()
	s.surplus -= int64(p.Len())
	s.launch(int64(p.Len()))
	l.packet = wire.Packet{Type: wire.Data, ConnectionID: s.id, Payload: p}
	return s, s.reseat()
}

// transmit hands l.packet to the stream, without holding mu meanwhile; s is the
// sender of its data, nil for a control packet. If the stream fails the link is
// closed. mu is held before and after.
func (l *Link) transmit(s *Sender) error {
	if s != nil {
		l.pingWhileActive()
	}
	l.sending, l.flying = true, s
	l.mu.Unlock()
	t := l.packet.Type
	err := l.cfg.Stream.SendMsg(&l.packet)
	l.packet.Payload.Free()
	l.packet = wire.Packet{}
	if err == nil {
		l.cfg.Observer.Sent(t)
	} else {
		l.cfg.Observer.SendFailed(t, err)
	}
	l.mu.Lock()
	l.sending, l.flying = false, nil
	if s != nil {
		s.landed(err == nil)
	}
	if err != nil {
		l.closeLocked(sendError(err))
	}
	l.afterSend()
	return err
}

// afterSend passes the stream on to the writer, or tells those who wait for
// everything to have left. mu is held.
func (l *Link) afterSend() {
	if l.err != nil || l.hasWork() {
		l.work.Signal()
		return
	}
	for _, c := range l.flush {
		close(c)
	}
	l.flush = nil
}
