package oldpeers

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/metadata"

	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// robot is an old agent that plays by itself what COMPAT 6.4 says, for tests with
// many tunnels: its endpoints echo, and those named "refused" refuse.
type robot struct {
	// Fixed after construction.
	stream rawStream
	over   chan struct{} // closed when its stream has ended

	// Owned by its goroutine.
	conns map[wire.ConnectionID]bool
	last  wire.ConnectionID

	mu sync.Mutex
	// Guarded by mu.
	served int
	faults []string // packets that no old agent can be sent
}

// readSize is how much the reference's agent reads at once.
const readSize = 4096

// robot connects one.
func (s *stage) robot(agentID, identifiers string) *robot {
	s.t.Helper()
	r := &robot{
		stream: s.openRaw(agents, tunneltest.ConnectMethod, metadata.Pairs("agentid", agentID, "agentidentifiers", identifiers)),
		over:   make(chan struct{}),
		conns:  map[wire.ConnectionID]bool{},
	}
	if md := r.stream.header(s.t); len(md.Get("serverid")) != 1 {
		s.t.Fatalf("the robot is answered with %v", md)
	}
	go r.run()
	s.t.Cleanup(r.kill)
	synctest.Wait()
	return r
}

// kill cuts it off.
func (r *robot) kill() {
	r.stream.conn.Close()
	<-r.over
}

func (r *robot) run() {
	defer close(r.over)
	for {
		var p wire.Packet
		if r.stream.RecvMsg(&p) != nil {
			return
		}
		r.check(p)
		for _, answer := range r.answers(p) {
			if r.stream.SendMsg(&answer) != nil {
				return
			}
		}
		p.Payload.Free()
	}
}

// check notes what an old agent could not understand.
func (r *robot) check(p wire.Packet) {
	if p.Type > wire.Drain || p.Mismatched || p.Window != 0 || p.CanHalfClose || p.Reason != 0 || p.Type == wire.Data && p.Payload.Len() == 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.faults = append(r.faults, line(p))
	}
}

// answers is what it makes of a packet.
func (r *robot) answers(p wire.Packet) (answers []wire.Packet) {
	id := p.ConnectionID
	switch p.Type {
	case wire.DialRequest:
		r.last++ // also for one that fails
		if strings.HasPrefix(p.Address, "refused") {
			return []wire.Packet{dialErr(p.DialID, "dial tcp 10.0.0.1:80: connect: connection refused")}
		}
		r.conns[r.last] = true
		r.mu.Lock()
		r.served++
		r.mu.Unlock()
		return []wire.Packet{dialRsp(p.DialID, r.last)}
	case wire.Data:
		switch {
		case id == 0:
		case !r.conns[id]:
			return []wire.Packet{closeRsp(id, "unrecognized connectID")}
		default:
			for piece := range slicesOf(p.Payload.Bytes(), readSize) {
				answers = append(answers, wire.Packet{Type: wire.Data, ConnectionID: id, Payload: wire.PayloadBytes(piece)})
			}
		}
	case wire.CloseRequest:
		if !r.conns[id] {
			return []wire.Packet{closeRsp(id, "Unknown connectID")}
		}
		delete(r.conns, id)
		return []wire.Packet{closeRsp(id, "")}
	}
	return answers // DIAL_CLS and all else is ignored
}

// state is how many connections it has made, and what it was sent wrongly.
func (r *robot) state() (served int, faults []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.served, r.faults
}

// echo serves an endpoint that sends back what it is sent, and its end behind it.
func (p *place) echo(address string) {
	l := p.listen(address)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.(*tunneltest.Conn).CloseWrite()
				_, _ = io.Copy(io.Discard, conn)
				conn.Close()
			}()
		}
	}()
}

// echoed sends bytes through a connection and wants them back.
func echoed(conn net.Conn, size int, seed uint64) error {
	want := pattern(size, seed)
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(want)
		sent <- err
	}()
	got := make([]byte, size)
	if _, err := io.ReadFull(conn, got); err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	if string(got) != string(want) {
		return fmt.Errorf("what came back is not what was sent")
	}
	return <-sent
}

// wantFaultless checks that a robot was sent nothing that an old agent cannot know.
func wantFaultless(t *testing.T, r *robot) {
	t.Helper()
	if _, faults := r.state(); len(faults) > 0 {
		t.Errorf("an old agent was sent %q", faults[:min(5, len(faults))])
	}
}
