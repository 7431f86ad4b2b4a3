package relay

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

const newAgent = wire.ExtCredit | wire.ExtHalfClose | wire.ExtReason | wire.ExtPing | wire.ExtReady | wire.ExtDrain

var errFakeLost = errors.New("fake link lost")

// fakeAgent is the far end of one link: it records what the relay sends, and what
// it says arrives at its Peer in order, on a goroutine of its own as a link's
// reader would have it. It is an Outlet.
type fakeAgent struct {
	t    *testing.T
	ext  wire.Extensions
	peer *Peer
	say  chan func() // what the reader does next; closed when the link ends
	gone chan struct{}

	mu       sync.Mutex
	cond     *sync.Cond
	sent     []wire.Packet                // control packets not taken by a test yet
	grants   map[wire.ConnectionID]int64  // all CREDIT
	got      map[wire.ConnectionID][]byte // all DATA
	senders  map[wire.ConnectionID]*fakeSender
	stalled  bool // DATA does not leave
	lost     bool
	onPacket func(wire.Packet) // called for each control packet, with no lock held by the caller to fear
}

// attach makes a link of an agent with these extensions.
func (w *world) attach(ext wire.Extensions) *fakeAgent {
	a := &fakeAgent{
		t: w.t, ext: ext,
		say:     make(chan func(), 1<<16),
		gone:    make(chan struct{}),
		grants:  map[wire.ConnectionID]int64{},
		got:     map[wire.ConnectionID][]byte{},
		senders: map[wire.ConnectionID]*fakeSender{},
	}
	a.cond = sync.NewCond(&a.mu)
	a.peer = w.relay.Attach(a, PeerInfo{AgentID: "agent", Since: time.Now()})
	w.router.add(a.peer)
	w.agents = append(w.agents, a)
	go func() {
		defer close(a.gone)
		for f := range a.say {
			f()
		}
		a.peer.Lost(errFakeLost)
	}()
	return a
}

// cut ends the link behind what the agent has said, and waits.
func (w *world) cut(a *fakeAgent) {
	w.router.remove(a.peer)
	a.mu.Lock()
	if a.lost {
		a.mu.Unlock()
		return
	}
	a.lost = true
	for _, s := range a.senders {
		s.drop(true)
	}
	a.mu.Unlock()
	close(a.say)
	<-a.gone
}

// packet hands pk to the Peer, on the reader's goroutine; it is dropped when the
// link is gone.
func (a *fakeAgent) packet(pk wire.Packet) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lost {
		pk.Payload.Free()
		return
	}
	a.say <- func() {
		a.peer.Heard()
		switch pk.Type {
		case wire.DialResponse:
			a.peer.DialResponse(pk)
		case wire.DialClose:
			a.peer.DialClosed(pk)
		case wire.Data:
			a.peer.Data(pk)
		case wire.CloseResponse:
			a.peer.CloseResponse(pk)
		case wire.HalfClose:
			a.peer.HalfClosed(pk)
		case wire.Credit:
			a.peer.Credit(pk)
		case wire.Drain:
			a.peer.Drain()
		}
	}
}

// take waits until nothing moves and returns the next control packet, which must
// be of type t.
func (a *fakeAgent) take(t wire.PacketType) wire.Packet {
	a.t.Helper()
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.sent) == 0 {
		a.t.Fatalf("the agent was sent nothing; want %v", t)
	}
	pk := a.sent[0]
	a.sent = a.sent[1:]
	if pk.Type != t {
		a.t.Fatalf("the agent was sent %v %+v, want %v", pk.Type, pk, t)
	}
	return pk
}

// nothing fails if the agent was sent a control packet.
func (a *fakeAgent) nothing() {
	a.t.Helper()
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.sent) > 0 {
		a.t.Fatalf("the agent was sent %v %+v, want nothing", a.sent[0].Type, a.sent[0])
	}
}

// data is all that has come for one connection.
func (a *fakeAgent) data(id wire.ConnectionID) string {
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	return string(a.got[id])
}

// granted is all credit that the relay has granted on one connection.
func (a *fakeAgent) granted(id wire.ConnectionID) int64 {
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.grants[id]
}

// stall keeps DATA from leaving, or lets it go on.
func (a *fakeAgent) stall(on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stalled = on
	for _, s := range a.senders {
		s.pump()
	}
}

func (a *fakeAgent) Extensions() wire.Extensions { return a.ext }

func (a *fakeAgent) MinRTT() time.Duration { return time.Millisecond }

func (a *fakeAgent) Send(pk wire.Packet) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.send(pk)
}

// send records a control packet. mu is held.
func (a *fakeAgent) send(pk wire.Packet) {
	if a.lost {
		return
	}
	if pk.Reason != 0 && !a.ext.Has(wire.ExtReason) || pk.Window != 0 && !a.ext.Has(wire.ExtCredit) ||
		pk.CanHalfClose && !a.ext.Has(wire.ExtHalfClose) || pk.Type == wire.HalfClose && !a.ext.Has(wire.ExtHalfClose) {
		a.t.Errorf("an agent with extensions %q was sent %+v", a.ext, pk)
	}
	if a.onPacket != nil {
		a.say <- func() { a.onPacket(pk) }
		return
	}
	a.sent = append(a.sent, pk)
}

func (a *fakeAgent) Grant(id wire.ConnectionID, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n <= 0 || !a.ext.Has(wire.ExtCredit) {
		a.t.Errorf("Grant(%d, %d) on a link with extensions %q", id, n, a.ext)
	}
	a.grants[id] += n
}

func (a *fakeAgent) NewSender(id wire.ConnectionID, credit int64) Sender {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ext.Has(wire.ExtCredit) {
		credit = 1 << 60
	}
	s := &fakeSender{agent: a, id: id, credit: credit}
	a.senders[id] = s
	return s
}

func (a *fakeAgent) Kill(error) {}
