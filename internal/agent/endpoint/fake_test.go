package endpoint

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

const allExtensions = wire.ExtCredit | wire.ExtHalfClose | wire.ExtReason | wire.ExtPing | wire.ExtReady | wire.ExtDrain

// fakeLink is an Outlet that keeps what a server would get. DATA counts against
// the credit of its sender, as on a real link.
type fakeLink struct {
	ext wire.Extensions

	mu      sync.Mutex
	changed sync.Cond
	packets []wire.Packet // control packets, in the order in which they would leave
	granted map[wire.ConnectionID]int64
	senders map[wire.ConnectionID]*fakeSender
	down    bool
}

func newFakeLink(ext wire.Extensions) *fakeLink {
	l := &fakeLink{ext: ext, granted: map[wire.ConnectionID]int64{}, senders: map[wire.ConnectionID]*fakeSender{}}
	l.changed.L = &l.mu
	return l
}

func (l *fakeLink) Extensions() wire.Extensions { return l.ext }
func (l *fakeLink) MinRTT() time.Duration       { return time.Millisecond }

func (l *fakeLink) Send(p wire.Packet) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.record(p)
}

func (l *fakeLink) record(p wire.Packet) {
	l.packets = append(l.packets, p)
	l.changed.Broadcast()
}

func (l *fakeLink) Grant(id wire.ConnectionID, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.granted[id] += n
	l.changed.Broadcast()
}

func (l *fakeLink) NewSender(id wire.ConnectionID, credit int64) Sender {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &fakeSender{link: l, id: id, credit: credit}
	if !l.ext.Has(wire.ExtCredit) {
		s.credit = 1 << 40
	}
	l.senders[id] = s
	return s
}

// lose is the link going away, as its senders see it.
func (l *fakeLink) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	l.changed.Broadcast()
}

// got returns the control packets about a connection or dial so far.
func (l *fakeLink) got(typ wire.PacketType) []wire.Packet {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []wire.Packet
	for _, p := range l.packets {
		if p.Type == typ {
			found = append(found, p)
		}
	}
	return found
}

func (l *fakeLink) sender(id wire.ConnectionID) *fakeSender {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.senders[id]
}

// fakeSender hands bytes over while there is credit.
type fakeSender struct {
	link *fakeLink
	id   wire.ConnectionID

	// Guarded by link.mu.
	credit  int64
	data    []byte
	queue   []byte
	trailer []wire.Packet
	ended   bool
	aborted bool
}

var errFakeLink = errors.New("fake link is down")

func (s *fakeSender) Write(p wire.Payload) error {
	l := s.link
	l.mu.Lock()
	defer l.mu.Unlock()
	defer p.Free()
	for len(s.queue) > 64<<10 && !s.aborted && !l.down {
		l.changed.Wait()
	}
	switch {
	case l.down:
		return errFakeLink
	case s.aborted || s.ended:
		return errors.New("fake sender is over")
	}
	s.queue = append(s.queue, p.Bytes()...)
	s.flush()
	return nil
}

// flush moves what credit allows. link.mu is held.
func (s *fakeSender) flush() {
	n := min(int64(len(s.queue)), s.credit)
	s.data = append(s.data, s.queue[:n]...)
	s.queue = s.queue[n:]
	s.credit -= n
	if len(s.queue) == 0 && !s.aborted {
		for _, p := range s.trailer {
			s.ended = s.ended || p.Type == wire.CloseResponse
			s.link.record(p)
		}
		s.trailer = nil
	}
	s.link.changed.Broadcast()
}

func (s *fakeSender) AddCredit(n int64) error {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	if n <= 0 {
		return errors.New("no credit")
	}
	s.credit += n
	s.flush()
	return nil
}

func (s *fakeSender) Finish(p wire.Packet) {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	if s.aborted || s.ended {
		return
	}
	s.trailer = append(s.trailer, p)
	s.flush()
}

func (s *fakeSender) Abort(p *wire.Packet) {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	if s.aborted || s.ended {
		return
	}
	s.aborted, s.queue, s.trailer = true, nil, nil
	if p != nil {
		s.link.record(*p)
	}
	s.link.changed.Broadcast()
}

func (s *fakeSender) WaitEnded() {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	for !s.ended && !s.aborted && !s.link.down {
		s.link.changed.Wait()
	}
}

func (s *fakeSender) Queued() int64 {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	return int64(len(s.queue))
}

func (s *fakeSender) received() []byte {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	return slices.Clone(s.data)
}

// memDialer dials on an in-memory network, whatever the protocol.
type memDialer struct{ net *tunneltest.Network }

func (d memDialer) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	return d.net.Dial(ctx, address)
}

// counts is an Observer that counts.
type counts struct {
	NopObserver
	mu                     sync.Mutex
	opened, closed, failed int
	blocked, blocks        int
	ends                   []End
	failures               []*wire.DialError
}

func (c *counts) Opened(Info) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened++
}

func (c *counts) Closed(_ Info, end End) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed++
	c.ends = append(c.ends, end)
}

func (c *counts) DialFailed(_ Dial, err *wire.DialError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed++
	c.failures = append(c.failures, err)
}

func (c *counts) ReaderBlocked(delta int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.blocked += delta
	c.blocks++
}

// bench is one link, one room and one listener "endpoint" in a bubble.
type bench struct {
	t        *testing.T
	net      *tunneltest.Network
	listener *tunneltest.Listener
	room     *Endpoints
	table    *Table
	link     *fakeLink
	seen     *counts
	dials    wire.DialID
}

// inBubble runs a test in fake time and checks afterwards that nothing is left.
func inBubble(t *testing.T, ext wire.Extensions, cfg Config, test func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, net: tunneltest.NewNetwork(0), seen: &counts{}, link: newFakeLink(ext)}
		b.listener = b.net.Listen("endpoint")
		b.room = New(cfg, memDialer{b.net}, b.seen)
		b.table = b.room.Attach(t.Context(), b.link)
		test(t, b)
		_ = b.listener.Close()
		b.link.lose()
		b.table.Lost(errFakeLink)
		b.room.Close()
		b.checkEmpty()
	})
}

// checkEmpty fails if anything is still held.
func (b *bench) checkEmpty() {
	b.t.Helper()
	synctest.Wait()
	if n := b.table.Connections(); n != 0 {
		b.t.Errorf("%d connections left in the table", n)
	}
	if n := b.room.Open(); n != 0 {
		b.t.Errorf("%d connections left in the room", n)
	}
	if n := b.table.Pending(); n != 0 {
		b.t.Errorf("%d dials left", n)
	}
	if err := b.room.WaitIdle(b.t.Context()); err != nil {
		b.t.Errorf("not idle: %v", err)
	}
	if n := b.room.cfg.Budget.Used(); n != 0 {
		b.t.Errorf("%d bytes of the budget left", n)
	}
	if b.seen.opened != b.seen.closed {
		b.t.Errorf("%d opened, %d closed", b.seen.opened, b.seen.closed)
	}
	if b.seen.blocked != 0 {
		b.t.Errorf("reader blocked %d", b.seen.blocked)
	}
}

// open dials the endpoint and returns the connection ID and the endpoint's side.
func (b *bench) open() (wire.ConnectionID, *tunneltest.Conn) { return b.openWith(256<<10, true) }

func (b *bench) openWith(credit int64, half bool) (wire.ConnectionID, *tunneltest.Conn) {
	b.t.Helper()
	b.dials++
	b.table.DialRequest(wire.Packet{
		Type: wire.DialRequest, DialID: b.dials, Protocol: "tcp", Address: "endpoint",
		Window: credit, CanHalfClose: half,
	})
	nc, err := b.listener.Accept()
	if err != nil {
		b.t.Fatal(err)
	}
	synctest.Wait()
	answers := b.link.got(wire.DialResponse)
	last := answers[len(answers)-1]
	if last.DialID != b.dials || last.ConnectionID == 0 || last.Error != "" {
		b.t.Fatalf("dial answered with %+v", last)
	}
	return last.ConnectionID, nc.(*tunneltest.Conn)
}

func (b *bench) send(id wire.ConnectionID, data []byte) {
	b.table.Data(wire.Packet{Type: wire.Data, ConnectionID: id, Payload: wire.CopyPayload(data)})
}

func (b *bench) closeReq(id wire.ConnectionID, reason wire.Reason) {
	b.table.CloseRequest(wire.Packet{Type: wire.CloseRequest, ConnectionID: id, Reason: reason})
}

func (b *bench) halfClose(id wire.ConnectionID) {
	b.table.HalfClosed(wire.Packet{Type: wire.HalfClose, ConnectionID: id})
}

// wantClosed checks that exactly one CLOSE_RSP with this reason has left.
func (b *bench) wantClosed(id wire.ConnectionID, reason wire.Reason) {
	b.t.Helper()
	synctest.Wait()
	var rsp []wire.Packet
	for _, p := range b.link.got(wire.CloseResponse) {
		if p.ConnectionID == id {
			rsp = append(rsp, p)
		}
	}
	if len(rsp) != 1 || rsp[0].Reason != reason {
		b.t.Fatalf("connection %d answered with %+v, want one CLOSE_RSP with reason %v", id, rsp, reason)
	}
}

func (b *bench) wantOpen(id wire.ConnectionID) {
	b.t.Helper()
	synctest.Wait()
	for _, p := range b.link.got(wire.CloseResponse) {
		if p.ConnectionID == id {
			b.t.Fatalf("connection %d is over: %+v", id, p)
		}
	}
}

// readAll reads an endpoint's side to its end.
func readAll(t *testing.T, c net.Conn) []byte {
	t.Helper()
	all, err := io.ReadAll(c)
	if err != nil {
		t.Fatalf("endpoint read %d bytes, then %v", len(all), err)
	}
	return all
}

// pattern is n bytes that differ by position.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return b
}
