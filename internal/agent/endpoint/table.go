package endpoint

import (
	"context"
	"sync"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Table holds the connections and pending dials of one link. The link's reader
// calls the methods named after packets, one at a time; they take over the
// packet and its payload, ignore one that is Mismatched, and do not wait, except
// Data behind a server without credit. Lost may be called from anywhere.
type Table struct {
	// Fixed after construction.
	room   *Endpoints
	out    Outlet
	ext    wire.Extensions
	ctx    context.Context // of dials; ends with the link
	cancel context.CancelFunc

	// Guarded by mu, which is the last lock to be taken.
	mu      sync.Mutex
	lost    bool
	lastID  wire.ConnectionID
	dials   map[wire.DialID][]*dial // pending; a server may use a dial ID twice
	pending int
	conns   map[wire.ConnectionID]*conn // those that the server may speak of
}

// Attach makes the table of a link. ctx ends its dials, as Lost does, and its
// profiler labels are those of all goroutines.
func (e *Endpoints) Attach(ctx context.Context, out Outlet) *Table {
	t := &Table{
		room:  e,
		out:   out,
		ext:   out.Extensions(),
		dials: make(map[wire.DialID][]*dial),
		conns: make(map[wire.ConnectionID]*conn),
	}
	t.ctx, t.cancel = context.WithCancel(ctx)
	return t
}

// Data takes bytes for an endpoint. A connection that is not known is answered
// with CLOSE_RSP (COMPAT 1.7).
func (t *Table) Data(p wire.Packet) {
	if p.Mismatched || p.ConnectionID == 0 {
		p.Payload.Free()
		return
	}
	c := t.find(p.ConnectionID)
	if c == nil {
		p.Payload.Free()
		t.refuse(p.ConnectionID, "unrecognized connectID")
		return
	}
	c.data(p.Payload)
}

// CloseRequest ends a connection: in order if no reason is given, else at once.
// It is answered with CLOSE_RSP in any case.
func (t *Table) CloseRequest(p wire.Packet) {
	if p.Mismatched || p.ConnectionID == 0 {
		return
	}
	c := t.find(p.ConnectionID)
	switch {
	case c == nil:
		t.refuse(p.ConnectionID, "Unknown connectID")
	case p.Reason == wire.ReasonNone:
		c.apply(evClose, End{})
	default:
		c.apply(evAbort, End{Reason: p.Reason})
	}
}

// HalfClosed says that the server sends no more data on a connection.
func (t *Table) HalfClosed(p wire.Packet) {
	if c := t.find(p.ConnectionID); c != nil && !p.Mismatched {
		c.apply(evHalfClose, End{})
	}
}

// Credit grants more bytes towards the server. Nonsense ends the connection.
func (t *Table) Credit(p wire.Packet) {
	c := t.find(p.ConnectionID)
	if c == nil || p.Mismatched {
		return
	}
	if err := c.sender.AddCredit(p.Window); err != nil {
		c.apply(evAbort, End{Reason: wire.ReasonCreditViolation, Text: err.Error()})
	}
}

// Lost says that the link is gone: all dials are cancelled and all connections
// reset within a second, after what had arrived for them; those that were closed
// in order before go on to their end, for which they need no link. Idempotent.
func (t *Table) Lost(err error) {
	t.mu.Lock()
	t.lost = true
	conns := make([]*conn, 0, len(t.conns))
	for _, c := range t.conns {
		conns = append(conns, c)
	}
	t.mu.Unlock()
	t.cancel()
	end := End{Reason: wire.ReasonLinkLost}
	if err != nil {
		end.Text = err.Error()
	}
	for _, c := range conns {
		c.apply(evLost, end)
	}
}

// Connections is how many connections the link has; Pending how many dials.
func (t *Table) Connections() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.conns)
}

// Pending is the number of dials that have no answer yet.
func (t *Table) Pending() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pending
}

func (t *Table) find(id wire.ConnectionID) *conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.conns[id]
}

// remove forgets c, whose ID the server will not use any more.
func (t *Table) remove(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns, c.id)
}

// refuse answers a packet about a connection that is not known.
func (t *Table) refuse(id wire.ConnectionID, text string) {
	t.out.Send(wire.Packet{Type: wire.CloseResponse, ConnectionID: id, Reason: wire.ReasonProtocolError, Error: text})
}
