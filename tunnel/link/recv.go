package link

import "github.com/culvert-proxy/culvert/tunnel/wire"

// Recv reads the next packet into p, overwriting it; the caller owns p.Payload.
// It answers pings and takes in pongs by itself, and swallows packets whose
// extension was not negotiated, so the caller sees plain and unknown types and
// those that were agreed on, each with only the fields that were.
//
// It waits for nothing but the stream. An error ends the link: it is the
// stream's own, unchanged, or the error with which the link was closed before.
// When only a send has failed, the packets that had arrived are returned first.
func (l *Link) Recv(p *wire.Packet) error {
	for {
		*p = wire.Packet{}
		if err := l.cfg.Stream.RecvMsg(p); err != nil {
			l.cfg.Observer.ReceiveFailed(err)
			l.Close(err)
			return l.Err()
		}
		l.cfg.Observer.Received(p.Type)
		l.heard(p)
		if l.closed.Load() {
			p.Payload.Free()
			*p = wire.Packet{}
			return l.Err()
		}
		if !permitted(l.cfg.Extensions, p.Type) {
			p.Payload.Free()
			continue
		}
		if p.Mismatched {
			return nil
		}
		strip(l.cfg.Extensions, p)
		switch p.Type {
		case wire.Ping:
			l.Send(wire.Packet{Type: wire.Pong, Nonce: p.Nonce})
		case wire.Pong:
			l.pong(p.Nonce)
		default:
			return nil
		}
	}
}

// heard notes that the peer is alive.
func (l *Link) heard(p *wire.Packet) {
	now := l.now()
	l.lastReceived.Store(now)
	if p.Type == wire.Data && l.cfg.Extensions.Has(wire.ExtPing) && now-l.lastPing.Load() >= int64(l.cfg.PingActive) {
		l.mu.Lock()
		l.pingWhileActive()
		l.mu.Unlock()
	}
}
