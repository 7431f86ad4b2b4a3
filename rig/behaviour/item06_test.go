package behaviour

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-proxy/culvert/rig/process"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// lost is within which time the other end's socket must be closed when one end,
// or what is between them, is gone.
const lost = time.Second

// An endpoint sends, is sure that all of it has arrived at the agent's host, and
// resets: the client has every byte and then an abnormal end, whether it has read
// along or begins only then.
func TestBehaviour06EndpointResetsWhileSending(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		s := newStage(t, k, options{})
		for name, c := range map[string]struct {
			size int64
			late bool
		}{
			"client reads along":     {scaled[int64](8<<20, 256<<20), false},
			"client reads only then": {200 << 10, true},
		} {
			t.Run(name, func(t *testing.T) {
				gone := make(chan time.Time, 1)
				e := newEndpoint(t, func(_ *endpoint, conn *net.TCPConn) {
					if err := give(conn, 1, c.size); err != nil {
						t.Errorf("the endpoint's write: %v", err)
					}
					if !process.Within(hang, func() bool { return unacked(conn) == 0 }) {
						t.Error("the endpoint's bytes are not acknowledged")
					}
					gone <- time.Now()
					conn.SetLinger(0)
				})
				noticed := s.agent.Metric(`culvert_agent_connections_closed_total{reason="reset"}`)
				client := s.mustDial(t, e.addr)
				defer client.Close()
				client.SetDeadline(time.Now().Add(hang))
				if c.late {
					process.Eventually(t, hang, "the agent notices the reset", func() bool {
						return s.agent.Metric(`culvert_agent_connections_closed_total{reason="reset"}`) > noticed
					})
				}
				got := take(client)
				if !c.late {
					within(t, <-gone, lost, "the client's end")
				}
				if err := got.begins(1, c.size); err != nil {
					t.Error(err)
				}
				if err := notAbnormal(k, got.err, wire.ReasonReset); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// unacked is how many bytes the peer's host has not acknowledged.
func unacked(c *net.TCPConn) int {
	n := -1
	if raw, err := c.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	}
	return n
}

// An endpoint takes some of what a client sends without end, and resets: the
// client learns of it both by writing and by reading.
func TestBehaviour06EndpointResetsWhileReceiving(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		s := newStage(t, k, options{})
		taken := make(chan digest, 1)
		gone := make(chan time.Time, 1)
		e := newEndpoint(t, func(_ *endpoint, conn *net.TCPConn) {
			taken <- take(io.LimitReader(conn, 4<<20))
			gone <- time.Now()
			conn.SetLinger(0)
		})
		client := s.mustDial(t, e.addr)
		defer client.Close()
		client.SetDeadline(time.Now().Add(hang))
		wrote := make(chan error, 1)
		go func() { wrote <- give(client, 2, 1<<40) }()
		got := take(client)
		within(t, <-gone, lost, "the client's end")
		if got.n != 0 {
			t.Errorf("%d bytes that nobody sent", got.n)
		}
		if err := notAbnormal(k, got.err, wire.ReasonReset); err != nil {
			t.Error(err)
		}
		if err := <-wrote; err == nil {
			t.Error("writing to what was reset goes on without an error")
		}
		if err := (<-taken).begins(2, 4<<20); err != nil {
			t.Error(err)
		}
	})
}

// transfers are three tunnels in the middle of something: one that carries bytes
// down without end, one that carries them up, and one on which all that the
// endpoint sent has arrived, though the client has not begun to read.
type transfers struct {
	s        *stand
	endpoint *endpoint
	down, up tunnel
	arrived  tunnel
	received chan digest // by the endpoint
	results  chan result // of the clients
}

// result is how one client's reading ended.
type result struct {
	name string
	digest
	err error // of writing
	at  time.Time
}

// Seeds of the three.
const (
	seedDown, seedUp, seedArrived = 10, 11, 12
)

// arrivedSize is more than what lies between the server and a client that does not
// read, where the kernel does not make that too much, and less than that and the
// tunnel's first window (256 KiB): nobody needs to read for it to arrive.
func arrivedSize(k kind) int64 {
	switch k {
	case connectUDS:
		return 320 << 10
	case connectTLS:
		return 128 << 10
	}
	return 600 << 10
}

func startTransfers(t *testing.T, s *stand) *transfers {
	t.Helper()
	x := &transfers{s: s, received: make(chan digest, 1), results: make(chan result, 3)}
	x.endpoint = newEndpoint(t, func(_ *endpoint, conn *net.TCPConn) {
		var role [1]byte
		if _, err := io.ReadFull(conn, role[:]); err != nil {
			return
		}
		switch role[0] {
		case 'd':
			give(conn, seedDown, 1<<40)
		case 'u':
			x.received <- take(conn)
		case 'a':
			give(conn, seedArrived, arrivedSize(s.kind))
			io.Copy(io.Discard, conn)
		case 'e':
			io.Copy(conn, conn)
		}
	})
	x.down, x.up, x.arrived = x.dial('d'), x.dial('u'), x.dial('a')
	x.await()
	return x
}

func (x *transfers) dial(role byte) tunnel {
	x.s.t.Helper()
	c := x.s.mustDial(x.s.t, x.endpoint.addr)
	c.SetDeadline(time.Now().Add(hang))
	if _, err := c.Write([]byte{role}); err != nil {
		x.s.t.Fatal(err)
	}
	return c
}

// await starts the two endless clients and waits until they are under way and
// until what is to have arrived has: links serve their tunnels in turns, so that
// behind these echoes nothing of it waits any more.
func (x *transfers) await() {
	t := x.s.t
	t.Helper()
	moved := make(chan struct{})
	go func() {
		first := digestOf(x.down, 4<<20)
		close(moved)
		first.continues(x.down)
		x.results <- result{name: "down", digest: first.end(first.err), at: time.Now()}
	}()
	go func() {
		wrote := make(chan error, 1)
		go func() { wrote <- give(x.up, seedUp, 1<<40) }()
		got := take(x.up)
		x.results <- result{name: "up", digest: got, at: time.Now(), err: <-wrote}
	}()
	const up = `culvert_server_relayed_bytes_total{direction="up"}`
	process.Eventually(t, hang, "the transfers are under way", func() bool { return x.s.server.Metric(up) > 4<<20 })
	select {
	case <-moved:
	case <-time.After(hang):
		t.Fatal("the download does not get under way")
	}
	probe := x.dial('e')
	for range 3 * arrivedSize(x.s.kind) / (16 << 10) {
		ping(t, probe)
	}
	probe.Close()
}

// running is a digest of what is still being read.
type running struct {
	*digester
	err error
}

func digestOf(r io.Reader, n int64) *running {
	d := &running{digester: newDigester()}
	_, d.err = io.CopyN(d.digester, r, n)
	return d
}

func (d *running) continues(r io.Reader) {
	if d.err == nil {
		_, d.err = io.CopyBuffer(d.digester, struct{ io.Reader }{r}, make([]byte, chunk))
	}
}

// check looks at the ends of the clients, which must come within the promised
// time after since: right beginnings, all of what had arrived, and nothing that
// looks like an orderly end.
func (x *transfers) check(since time.Time, whole bool, reasons ...wire.Reason) {
	t := x.s.t
	t.Helper()
	k := x.s.kind
	got := take(x.arrived) // begins to read only now
	if err := got.begins(seedArrived, -1); err != nil {
		t.Errorf("late reader: %v", err)
	}
	if all := arrivedSize(k); whole && got.n != all {
		t.Errorf("late reader: %d of %d bytes that had arrived", got.n, all)
	}
	if err := notAbnormal(k, got.err, reasons...); err != nil {
		t.Errorf("late reader: %v", err)
	}
	for range 2 {
		r := <-x.results
		if took := r.at.Sub(since); took > lost+grace {
			t.Errorf("%s: the client saw the end after %v, promised are %v", r.name, took, lost)
		}
		if err := r.begins(seedDown, -1); err != nil {
			t.Errorf("%s: %v", r.name, err)
		}
		if err := notAbnormal(k, r.digest.err, reasons...); err != nil {
			t.Errorf("%s: %v", r.name, err)
		}
		if r.name == "up" && r.err == nil {
			t.Error("up: writing goes on without an error")
		}
	}
	for _, c := range []tunnel{x.down, x.up, x.arrived} {
		c.Close()
	}
}

// endpointEnds checks that all of the endpoint's sockets were closed within the
// promised time, and what the one that received without end got. A process that
// is killed closes its sockets with a FIN, if it has read all there was.
func (x *transfers) endpointEnds(since time.Time, killed bool) {
	t := x.s.t
	t.Helper()
	process.Eventually(t, hang, "the endpoint's sockets are closed", func() bool { return x.endpoint.live() == 0 })
	within(t, since, lost, "closing the endpoint's sockets")
	got := <-x.received
	if err := got.begins(seedUp, -1); err != nil {
		t.Errorf("endpoint: %v", err)
	}
	if got.err == nil && !killed {
		t.Error("endpoint: the end is not shown as abnormal but as a FIN")
	}
}

// An agent is killed in mid-transfer.
func TestBehaviour06AgentKilled(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		s := newStand(t, k, standOptions{ids: []string{""}})
		x := startTransfers(t, s)
		since := time.Now()
		s.agents[0].Kill()
		process.Eventually(t, hang, "the server notices", func() bool { return s.server.Metric(liveLinks) == 0 })
		x.check(since, true, wire.ReasonLinkLost)
		x.endpointEnds(since, true)
		s.quiet()
	})
}

// A server is killed in mid-transfer. How much of what it had has arrived at a
// client is known to nobody.
func TestBehaviour06ServerKilled(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		s := newStand(t, k, standOptions{ids: []string{""}})
		x := startTransfers(t, s)
		since := time.Now()
		s.server.Kill()
		x.check(since, false, wire.ReasonLinkLost)
		x.endpointEnds(since, false)
		s.quiet()
	})
}

// A server that freezes cannot be told from a slow one but by its pings: the
// agent gives it up after 25 s and closes what it holds for it.
func TestBehaviour06ServerFrozen(t *testing.T) {
	t.Parallel() // it waits
	atOnce(t, func(t *testing.T, k kind) {
		s := newStand(t, k, standOptions{ids: []string{""}})
		e := newEndpoint(t, neverCloses)
		var clients sync.WaitGroup
		for range 3 {
			c := s.mustDial(t, e.addr)
			c.Write([]byte("hello"))
			clients.Go(func() { io.Copy(io.Discard, c) })
		}
		process.Eventually(t, hang, "the endpoint has its connections", func() bool { return e.live() == 3 })
		freeze(t, s.server.Process)
		since := time.Now()
		settle(t, hang, func() string {
			if n := e.live(); n > 0 {
				return fmt.Sprintf("%d sockets at the endpoint of a frozen server", n)
			}
			return ""
		})
		within(t, since, 30*time.Second, "giving a frozen server up")
		s.server.Kill()
		clients.Wait()
		s.quiet()
	}, connectUDS, grpcReusable)
}
