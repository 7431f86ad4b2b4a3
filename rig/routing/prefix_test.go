package routing

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/culvert-proxy/culvert/rig/process"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// TestEachDialGoesWhereItsSubnetIs: by prefixes, and to any agent where there is
// none for it.
func TestEachDialGoesWhereItsSubnetIs(t *testing.T) {
	for _, mode := range []string{"grpc", "http-connect"} {
		t.Run(mode, func(t *testing.T) {
			w := newWorld(t, mode)
			d := connectDialer(w)
			if mode == "grpc" {
				d = grpcDialer(t, w)
			}
			for i := 1; i <= agents; i++ {
				w.start(i, w.prefixes(i))
			}
			w.onlyItsOwn()
			_, ready, err := process.Get(w.server.Health + "/readyz?verbose")
			for _, line := range []string{"strategy destCIDR: 3 backends under 3 keys\n", "strategy default: 3 backends under 3 keys\n"} {
				if err != nil || !strings.Contains(ready, line) {
					t.Errorf("%q is missing in /readyz?verbose (%v):\n%s", line, err, ready)
				}
			}
			for i := 1; i <= agents; i++ {
				before := w.dialled()
				const n = 20
				for host := range n {
					v := visit{subnet: i}
					if v.who, v.dialed, v.err = d.visit(w.address(i, 1+host)); v.inOrder() != nil {
						t.Fatal(v.inOrder())
					}
				}
				for j, now := range w.dialled() {
					if want := before[j] + map[bool]float64{true: n}[i == j]; now != want {
						t.Errorf("after the dials into subnet %d agent %d has made %v, want %v", i, j, now, want)
					}
				}
			}
			who := map[string]bool{}
			for host := range 60 {
				v := visit{subnet: uncovered}
				if v.who, v.dialed, v.err = d.visit(w.address(uncovered, 1+host)); v.inOrder() != nil {
					t.Fatal(v.inOrder())
				}
				who[v.who] = true
			}
			if namespaces() && len(who) != agents {
				t.Errorf("dials that no prefix covers went to %v only", who)
			}
		})
	}
}

// onlyItsOwn checks what the other checks rest on: a wrong agent could not answer.
func (w *world) onlyItsOwn() {
	w.t.Helper()
	if !namespaces() {
		return
	}
	for i := 1; i <= agents; i++ {
		for subnet := 1; subnet <= agents; subnet++ {
			var conn net.Conn
			var err error
			w.places[i].in(func() { conn, err = net.DialTimeout("tcp", w.address(subnet, 1), hang) })
			if err == nil {
				conn.Close()
			}
			if i == subnet && err != nil || i != subnet && !errors.Is(err, syscall.ENETUNREACH) {
				w.t.Fatalf("from the place of agent %d, subnet %d: %v", i, subnet, err)
			}
		}
	}
}

// dialled is how many dials each agent has made.
func (w *world) dialled() (n [agents + 1]float64) {
	for i := 1; i <= agents; i++ {
		n[i] = w.agents[i].Metric(dials)
	}
	return n
}

// TestAgentIsKilled under load: dials into subnets that other agents cover do not
// fail. Tunnels that the dead agent served are lost, of course, but none that was
// asked for after its death.
func TestAgentIsKilled(t *testing.T) {
	w := newWorld(t, "grpc")
	d := grpcDialer(t, w)
	w.start(1, w.prefixes(1, shared))
	w.start(2, w.prefixes(2, shared))
	w.start(3, w.prefixes(3))
	l := w.startLoad(d, shared, 2, uncovered, 3)
	l.more(200)
	w.agents[1].Kill()
	dead := time.Now()
	l.more(400 + atOnce)
	visits := l.end()

	late, byDead := 0, 0
	for _, v := range visits {
		err := v.inOrder()
		if v.began.After(dead) {
			late++
			if v.who == "1" {
				err = errors.New("a dead agent served a dial")
			}
		} else if v.who == strconv.Itoa(1) {
			byDead++
		}
		lost := v.dialed && v.err != nil && v.subnet >= shared && !v.began.After(dead)
		if err != nil && !lost {
			t.Errorf("%v after the death: %v", v.began.Sub(dead), err)
		}
	}
	t.Logf("%d dials, %d of them after the death; the agent had served %d", len(visits), late, byDead)
	if late < 400 || namespaces() && byDead == 0 {
		t.Error("too few of them for this to say anything")
	}
	w.nobodyServes(d, 1)
}

// nobodyServes: a dial into a subnet that no agent reaches any more fails at once,
// with a reason, after the others were tried.
func (w *world) nobodyServes(d dialer, subnet int) {
	w.t.Helper()
	if !namespaces() {
		return
	}
	_, dialed, err := d.visit(w.address(subnet, 1))
	var failure *wire.DialError
	if dialed || !errors.As(err, &failure) || failure.Reason != wire.ReasonUnreachable || !strings.Contains(err.Error(), "unreachable") {
		w.t.Error(fmt.Errorf("a dial that nobody can serve: %w", err))
	}
}
