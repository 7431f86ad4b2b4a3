package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/pprof"
	"strconv"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/flow"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// dial is a pending dial.
type dial struct {
	// Fixed after construction.
	packet wire.Packet
	id     wire.ConnectionID // its connection's, if it succeeds
	cancel context.CancelFunc
	start  time.Time

	// Guarded by Table.mu.
	canceled bool // by DIAL_CLS: the server wants no answer
}

// DialRequest starts a dial. Its answer is a DIAL_RSP, unless DIAL_CLS or the
// end of the link comes first. Every request uses up a connection ID.
func (t *Table) DialRequest(p wire.Packet) {
	if p.Mismatched {
		return
	}
	t.mu.Lock()
	if t.lost {
		t.mu.Unlock()
		return
	}
	t.lastID++
	d := &dial{packet: p, id: t.lastID, start: time.Now()}
	if err := t.admit(p); err != nil {
		t.mu.Unlock()
		t.dialFailed(d, err)
		return
	}
	var ctx context.Context
	ctx, d.cancel = context.WithTimeout(t.ctx, t.room.cfg.DialTimeout)
	t.dials[p.DialID] = append(t.dials[p.DialID], d)
	t.pending++
	t.room.begin()
	t.room.wg.Add(1)
	t.mu.Unlock()
	go t.dial(ctx, d)
}

// admit says why a dial is not even tried. mu is held.
func (t *Table) admit(p wire.Packet) error {
	cfg := &t.room.cfg
	switch {
	case t.room.refusing.Load():
		return &wire.DialError{Reason: wire.ReasonShutdown, Err: errors.New("agent is shutting down")}
	case t.pending >= cfg.MaxPendingDials:
		return &wire.DialError{Reason: wire.ReasonLimit, Err: errors.New("agent has too many pending dials")}
	case cfg.MaxConnections > 0 && t.pending+len(t.conns) >= cfg.MaxConnections:
		return &wire.DialError{Reason: wire.ReasonLimit, Err: errors.New("agent has too many connections")}
	case len(p.Address) > maxAddress:
		return &wire.DialError{Reason: wire.ReasonBadAddress, Err: errors.New("dial tcp: address too long")}
	case !tcpNetwork(p.Protocol):
		return &wire.DialError{Reason: wire.ReasonProtocol, Err: fmt.Errorf("dial %.32q: unsupported protocol, only tcp, tcp4 and tcp6 are", p.Protocol)}
	}
	return nil
}

// tcpNetwork reports whether an agent dials this network. Others would reach
// sockets of its own node.
func tcpNetwork(network string) bool {
	return network == "tcp" || network == "tcp4" || network == "tcp6"
}

// DialClosed cancels every pending dial with the packet's dial ID. They are not
// answered any more.
func (t *Table) DialClosed(p wire.Packet) {
	if p.Mismatched {
		return
	}
	t.mu.Lock()
	dials := t.dials[p.DialID]
	for _, d := range dials {
		d.canceled = true
	}
	t.mu.Unlock()
	for _, d := range dials {
		d.cancel()
	}
}

// dial runs on a goroutine of its own, whose stack is as deep as resolving a
// name needs; the pumps have fresh ones.
func (t *Table) dial(ctx context.Context, d *dial) {
	defer t.room.wg.Done()
	defer d.cancel()
	pprof.SetGoroutineLabels(pprof.WithLabels(ctx, pprof.Labels("dial", strconv.FormatInt(int64(d.packet.DialID), 10))))
	nc, err := t.room.dialer.Dial(ctx, d.packet.Protocol, d.packet.Address)
	if err == nil && t.establish(d, nc) {
		return
	}
	t.mu.Lock()
	t.forget(d)
	silent := d.canceled || t.lost
	t.mu.Unlock()
	if err == nil || silent {
		err = &wire.DialError{Reason: wire.ReasonCanceled, Err: context.Canceled}
	}
	if silent {
		t.observeFailure(d, asDialError(err))
	} else {
		t.dialFailed(d, err)
	}
	t.room.done()
}

// forget takes d off the pending dials. mu is held.
func (t *Table) forget(d *dial) {
	t.pending--
	id := d.packet.DialID
	rest := t.dials[id][:0:0]
	for _, other := range t.dials[id] {
		if other != d {
			rest = append(rest, other)
		}
	}
	if len(rest) == 0 {
		delete(t.dials, id)
		return
	}
	t.dials[id] = rest
}

// establish registers the connection, tells the server of it and starts its
// pumps, in this order. It reports false, and closes nc, if nobody wants it any
// more; then d is still pending.
func (t *Table) establish(d *dial, nc net.Conn) bool {
	c := t.newConn(d, nc)
	c.mu.Lock() // so that nothing is said of the connection before its birth
	defer c.unlock()
	t.mu.Lock()
	if d.canceled || t.lost {
		t.mu.Unlock()
		c.sock.reset()
		c.sender.Abort(nil)
		if c.window != nil {
			c.window.Release()
		}
		return false
	}
	t.forget(d)
	t.conns[c.id] = c
	t.room.add(c)
	t.room.wg.Add(2)
	t.mu.Unlock()

	rsp := wire.Packet{Type: wire.DialResponse, DialID: c.dialID, ConnectionID: c.id}
	if c.window != nil {
		rsp.Window = c.window.Size()
	}
	t.room.obs.DialSucceeded(t.describe(d))
	t.room.obs.Opened(c.infoLocked())
	t.out.Send(rsp)
	pprof.SetGoroutineLabels(pprof.WithLabels(t.ctx, pprof.Labels("connection", strconv.FormatInt(int64(c.id), 10))))
	go func() {
		defer t.room.wg.Done()
		c.pumpUp()
	}()
	go func() {
		defer t.room.wg.Done()
		c.pumpDown()
	}()
	return true
}

func (t *Table) newConn(d *dial, nc net.Conn) *conn {
	cfg := &t.room.cfg
	c := &conn{
		table:    t,
		id:       d.id,
		dialID:   d.packet.DialID,
		protocol: d.packet.Protocol,
		address:  d.packet.Address,
		remote:   nc.RemoteAddr().String(),
		since:    time.Now(),
		sock:     newSocket(nc, &t.room.chunks),
		sender:   t.out.NewSender(d.id, d.packet.Window),
		halfable: d.packet.CanHalfClose && t.ext.Has(wire.ExtHalfClose),
	}
	limit := cfg.OldPeerQueue
	if t.ext.Has(wire.ExtCredit) {
		c.window = flow.NewWindow(cfg.Budget, cfg.Window)
		limit = max(cfg.Window.Max, c.window.Size())
	}
	c.queue = flow.New[wire.Payload](limit)
	return c
}

// dialFailed answers a dial with its failure.
func (t *Table) dialFailed(d *dial, err error) {
	failure := asDialError(err)
	text := failure.Error()
	if text == "" { // would be a success to an old server
		text = "dial failed: " + failure.Reason.String()
	}
	t.observeFailure(d, failure)
	t.out.Send(wire.Packet{Type: wire.DialResponse, DialID: d.packet.DialID, Error: text, Reason: failure.Reason})
}

func (t *Table) observeFailure(d *dial, failure *wire.DialError) {
	info := t.describe(d)
	var timeout net.Error
	info.Timeout = errors.As(failure, &timeout) && timeout.Timeout()
	t.room.obs.DialFailed(info, failure)
}

func (t *Table) describe(d *dial) Dial {
	return Dial{
		DialID:       d.packet.DialID,
		ConnectionID: d.id,
		Protocol:     d.packet.Protocol,
		Address:      d.packet.Address,
		Took:         time.Since(d.start),
	}
}
