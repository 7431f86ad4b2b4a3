package endpoint

import (
	"bytes"
	"errors"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/mem"

	"github.com/culvert-proxy/culvert/tunnel/flow"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// realBench is a link and real sockets. Its bounds in seconds are for hangs only.
type realBench struct {
	t        *testing.T
	listener *net.TCPListener
	room     *Endpoints
	table    *Table
	link     *fakeLink
	dials    wire.DialID
}

func newRealBench(t *testing.T, ext wire.Extensions, cfg Config) *realBench {
	t.Helper()
	others := goleak.IgnoreCurrent()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &realBench{t: t, listener: l.(*net.TCPListener), link: newFakeLink(ext)}
	b.room = New(cfg, NewNetDialer(NetDialerConfig{}), nil)
	b.table = b.room.Attach(t.Context(), b.link)
	t.Cleanup(func() {
		_ = l.Close()
		b.link.lose()
		b.table.Lost(nil)
		b.room.Close()
		if n := b.room.cfg.Budget.Used(); n != 0 {
			t.Errorf("%d bytes of the budget left", n)
		}
		goleak.VerifyNone(t, others)
	})
	return b
}

func (b *realBench) open(credit int64) (wire.ConnectionID, *net.TCPConn) {
	b.t.Helper()
	b.dials++
	b.table.DialRequest(wire.Packet{
		DialID: b.dials, Protocol: "tcp", Address: b.listener.Addr().String(), Window: credit, CanHalfClose: true,
	})
	c, err := b.listener.AcceptTCP()
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = c.Close() })
	rsp := b.waitFor(wire.DialResponse, func(p wire.Packet) bool { return p.DialID == b.dials })
	return rsp.ConnectionID, c
}

// waitFor waits for a control packet.
func (b *realBench) waitFor(typ wire.PacketType, match func(wire.Packet) bool) wire.Packet {
	b.t.Helper()
	late := time.AfterFunc(30*time.Second, b.link.lose)
	defer late.Stop()
	b.link.mu.Lock()
	defer b.link.mu.Unlock()
	for !b.link.down {
		for _, p := range b.link.packets {
			if p.Type == typ && match(p) {
				return p
			}
		}
		b.link.changed.Wait()
	}
	b.t.Fatalf("no %v came", typ)
	return wire.Packet{}
}

func (b *realBench) waitClosed(id wire.ConnectionID) wire.Packet {
	b.t.Helper()
	return b.waitFor(wire.CloseResponse, func(p wire.Packet) bool { return p.ConnectionID == id })
}

func (b *realBench) send(id wire.ConnectionID, data []byte) {
	b.table.Data(wire.Packet{ConnectionID: id, Payload: wire.CopyPayload(data)})
}

// sendAll sends data as a server would: within its credit, 32 KiB at most each.
func (b *realBench) sendAll(id wire.ConnectionID, data []byte) {
	credit := b.waitFor(wire.DialResponse, func(p wire.Packet) bool { return p.ConnectionID == id }).Window
	for sent := int64(0); len(data) > 0; {
		n := min(len(data), 32<<10)
		b.link.mu.Lock()
		for b.link.granted[id]+credit-sent < int64(n) && !b.link.down {
			b.link.changed.Wait()
		}
		down := b.link.down
		b.link.mu.Unlock()
		if down {
			return
		}
		b.send(id, data[:n])
		sent += int64(n)
		data = data[n:]
	}
}

// TestTCPBothWays: every byte, in order, in both directions at once.
func TestTCPBothWays(t *testing.T) {
	b := newRealBench(t, allExtensions, Config{})
	id, ep := b.open(1 << 40)
	up, down := pattern(20<<20), pattern(12<<20)
	go func() {
		for rest := down; len(rest) > 0; { // writes of many sizes
			n := min(len(rest), 1+len(rest)%70000)
			if _, err := ep.Write(rest[:n]); err != nil {
				return
			}
			rest = rest[n:]
		}
		_ = ep.CloseWrite()
	}()
	go func() {
		b.sendAll(id, up)
		b.table.HalfClosed(wire.Packet{ConnectionID: id})
	}()
	got, err := io.ReadAll(ep)
	if err != nil || !bytes.Equal(got, up) {
		t.Fatalf("endpoint got %d of %d bytes, %v", len(got), len(up), err)
	}
	if rsp := b.waitClosed(id); rsp.Reason != wire.ReasonNone {
		t.Errorf("ended with %+v", rsp)
	}
	if got := b.link.sender(id).received(); !bytes.Equal(got, down) {
		t.Errorf("server got %d of %d bytes", len(got), len(down))
	}
}

// TestTCPSmallPackets: the reader's own writes and the pump's stay in order.
func TestTCPSmallPackets(t *testing.T) {
	b := newRealBench(t, allExtensions, Config{})
	id, ep := b.open(1 << 40)
	want := pattern(3 << 20)
	go func() {
		for rest := want; len(rest) > 0; {
			n := min(len(rest), 1+len(rest)%9000) // below and above the limit of direct writes
			b.sendAll2(id, rest[:n])
			rest = rest[n:]
		}
		b.table.CloseRequest(wire.Packet{ConnectionID: id})
	}()
	got, err := io.ReadAll(ep)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("endpoint got %d of %d bytes, %v", len(got), len(want), err)
	}
	b.waitClosed(id)
}

// sendAll2 sends one packet when there is credit for it.
func (b *realBench) sendAll2(id wire.ConnectionID, data []byte) {
	window := b.link.got(wire.DialResponse)[0].Window
	c := b.table.find(id)
	b.link.mu.Lock()
	for c != nil && !b.link.down && b.link.granted[id]+window-c.sentSoFar() < int64(len(data)) {
		b.link.changed.Wait()
	}
	b.link.mu.Unlock()
	b.send(id, data)
}

func (c *conn) sentSoFar() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.accepted
}

// TestTCPResetIsNeverOrderly: whoever meets the endpoint's reset first, the
// reading or the writing side, the end is abnormal and what had arrived is there.
func TestTCPResetIsNeverOrderly(t *testing.T) {
	b := newRealBench(t, allExtensions, Config{Window: flow.WindowConfig{Initial: 4 << 20}})
	for range 100 {
		id, ep := b.open(1 << 40)
		if _, err := ep.Write([]byte("before")); err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 100000 { // less than the credit
				select {
				case <-stop:
					return
				default:
					b.send(id, []byte("some data that is under way")) // some of it is answered with a reset
					runtime.Gosched()
				}
			}
		}()
		b.waitData(id, 6)
		_ = ep.SetLinger(0)
		_ = ep.Close()
		rsp := b.waitClosed(id)
		close(stop)
		<-done
		if rsp.Reason != wire.ReasonReset {
			t.Fatalf("ended with %+v", rsp)
		}
		if got := b.link.sender(id).received(); string(got) != "before" {
			t.Fatalf("server got %q", got)
		}
	}
}

func (b *realBench) waitData(id wire.ConnectionID, n int) {
	b.t.Helper()
	s := b.link.sender(id)
	b.link.mu.Lock()
	defer b.link.mu.Unlock()
	for len(s.data) < n && !b.link.down {
		b.link.changed.Wait()
	}
}

// TestTCPCloseWaitsForTheKernel: bytes that only the kernel holds are delivered
// too, and the FIN comes after them, however late the endpoint reads.
func TestTCPCloseWaitsForTheKernel(t *testing.T) {
	b := newRealBench(t, allExtensions, Config{})
	id, ep := b.open(1 << 40)
	want := pattern(100 << 10)
	b.sendAll(id, want)
	if _, err := ep.Write(pattern(1000)); err != nil { // unread data must not become a reset
		t.Fatal(err)
	}
	b.table.CloseRequest(wire.Packet{ConnectionID: id})
	b.waitClosed(id)
	got, err := io.ReadAll(ep)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("endpoint got %d of %d bytes, %v", len(got), len(want), err)
	}
	_ = ep.Close()
	if err := b.room.WaitIdle(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestTCPStuckEndpoint: it is given up, with a reset, although the queue is
// empty and only the kernel holds bytes.
func TestTCPStuckEndpoint(t *testing.T) {
	b := newRealBench(t, allExtensions, Config{CloseTimeout: 300 * time.Millisecond})
	id, ep := b.open(1 << 40)
	if err := ep.SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	b.send(id, pattern(200<<10))
	b.table.CloseRequest(wire.Packet{ConnectionID: id})
	b.waitClosed(id)
	if err := b.room.WaitIdle(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := io.Copy(io.Discard, ep); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("endpoint saw %v, want a reset", err)
	}
}

// TestTCPLinkLost: what had arrived is delivered, then the end is abnormal.
func TestTCPLinkLost(t *testing.T) {
	b := newRealBench(t, allExtensions, Config{})
	id, ep := b.open(1 << 40)
	want := pattern(250 << 10)
	b.send(id, want)
	b.link.lose()
	b.table.Lost(errFakeLink)
	got, err := io.ReadAll(ep)
	if !bytes.Equal(got, want) || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("endpoint got %d of %d bytes, then %v", len(got), len(want), err)
	}
}

// countingPool knows how many of its buffers are out.
type countingPool struct{ out atomic.Int64 }

func (p *countingPool) Get(n int) *[]byte {
	p.out.Add(1)
	b := make([]byte, n, max(n, 2048)) // above gRPC's threshold of pooling
	return &b
}

func (p *countingPool) Put(*[]byte) { p.out.Add(-1) }

// TestBuffersAreFreed, whatever becomes of the connection.
func TestBuffersAreFreed(t *testing.T) {
	ends := map[string]func(b *realBench, id wire.ConnectionID, ep *net.TCPConn){
		"close": func(b *realBench, id wire.ConnectionID, ep *net.TCPConn) {
			b.table.CloseRequest(wire.Packet{ConnectionID: id})
			_, _ = io.Copy(io.Discard, ep)
			_ = ep.Close()
		},
		"abort": func(b *realBench, id wire.ConnectionID, _ *net.TCPConn) {
			b.table.CloseRequest(wire.Packet{ConnectionID: id, Reason: wire.ReasonAborted})
		},
		"lost":  func(b *realBench, _ wire.ConnectionID, _ *net.TCPConn) { b.table.Lost(nil) },
		"reset": func(_ *realBench, _ wire.ConnectionID, ep *net.TCPConn) { _ = ep.SetLinger(0); _ = ep.Close() },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			b := newRealBench(t, 0, Config{OldPeerQueue: 64 << 20})
			pool := &countingPool{}
			id, ep := b.open(0)
			for i := range 300 { // more than the kernel takes
				data := mem.Copy(pattern(2000+i*100), pool)
				b.table.Data(wire.Packet{ConnectionID: id, Payload: wire.PayloadOf(mem.BufferSlice{data})})
			}
			end(b, id, ep)
			if err := b.room.WaitIdle(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.room.wg.Wait()
			b.table.Data(wire.Packet{ConnectionID: id, Payload: wire.PayloadOf(mem.BufferSlice{mem.Copy(pattern(3000), pool)})})
			if n := pool.out.Load(); n != 0 {
				t.Errorf("%d buffers left", n)
			}
		})
	}
}

// TestIdleTunnelIsSmall: the agent's part of an idle tunnel, all told.
func TestIdleTunnelIsSmall(t *testing.T) {
	b := newRealBench(t, allExtensions, Config{})
	measure := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	const n = 400
	var eps []*net.TCPConn
	before := measure()
	for range n {
		id, ep := b.open(1 << 20)
		b.send(id, pattern(100)) // it was used once
		if _, err := io.ReadFull(ep, make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		if _, err := ep.Write(pattern(20000)); err != nil {
			t.Fatal(err)
		}
		b.waitData(id, 20000)
		b.link.sender(id).drop()
		eps = append(eps, ep)
	}
	per := (measure() - before) / n
	t.Logf("%d bytes per idle tunnel, both sides' sockets included", per)
	if per > 16<<10 {
		t.Errorf("%d bytes per idle tunnel, budget 16 KiB", per)
	}
	runtime.KeepAlive(eps)
}

func (s *fakeSender) drop() {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	s.data, s.queue = nil, nil
}
