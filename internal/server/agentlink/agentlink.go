package agentlink

import (
	"context"
	"net"
	"runtime/pprof"
	"time"

	"k8s.io/klog/v2"

	"github.com/culvert-proxy/culvert/internal/server/relay"
	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// agentLink is one agent's stream.
type agentLink struct {
	// Fixed after construction.
	srv      *Server
	id       identity
	ids      wire.Identifiers
	ext      wire.Extensions // negotiated
	raw      net.Conn
	cancel   context.CancelFunc // ends the stream's context
	address  string
	since    time.Time
	observer *observer
	link     *link.Link
	peer     *relay.Peer
	log      klog.Logger

	// Guarded by srv.mu.
	stage  stage
	second bool        // another link of this agent was live when this one came
	delay  *time.Timer // until an old agent's second link joins
}

// write is the writer's goroutine.
func (a *agentLink) write(done chan<- struct{}) {
	defer close(done)
	a.label("agentlink writer")
	_ = a.link.Run() // the reader learns of it, and ends the link
}

// awaitWriter waits for the writer of a link that has ended; one that is stuck in
// a send is freed by closing the connection.
func (a *agentLink) awaitWriter(written <-chan struct{}) {
	t := time.NewTimer(writerGrace)
	defer t.Stop()
	select {
	case <-written:
	case <-t.C:
		a.kill(nil)
		<-written
	}
}

// read is the reader: it reads and switches until the link ends, and returns why.
// It never sends, and waits for nothing but the stream, except for an old
// agent's stuck tunnel (Peer.Data).
func (a *agentLink) read() error {
	a.label("agentlink reader")
	var p wire.Packet
	for {
		if err := a.link.Recv(&p); err != nil {
			return err
		}
		a.dispatch(p)
	}
}

// dispatch hands p to whom its type concerns. A packet whose payload does not
// match its type carries nothing that could be used; what agents may not send
// and types that nobody knows are counted and otherwise passed over. COMPAT 1.6.
func (a *agentLink) dispatch(p wire.Packet) {
	if p.Mismatched {
		p.Payload.Free()
		return
	}
	switch p.Type {
	case wire.DialResponse:
		a.peer.DialResponse(p)
	case wire.DialClose:
		a.peer.DialClosed(p)
	case wire.Data:
		a.peer.Data(p)
	case wire.CloseResponse:
		a.peer.CloseResponse(p)
	case wire.HalfClose:
		a.peer.HalfClosed(p)
	case wire.Credit:
		a.peer.Credit(p)
	case wire.Drain:
		a.log.V(1).Info("Agent drains")
		a.peer.Drain()
	case wire.Ready:
		a.srv.join(a)
	default:
		p.Payload.Free()
	}
}

// label names the calling goroutine in profiles.
func (a *agentLink) label(room string) {
	labels := pprof.Labels("goroutine", room, "serverID", a.srv.cfg.ServerID, "agentID", a.id.agentID)
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), labels))
}
