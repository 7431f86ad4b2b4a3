package routing

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/culvert-proxy/culvert/rig/process"
)

// agents is how many there are; they are numbered from 1.
const agents = 3

// Subnets, beside those that are an agent's own and have its number.
const (
	shared    = 100 // covered by several agents' prefixes
	uncovered = 200 // by none's; every agent reaches it
)

// world is a server and the places of three agents.
type world struct {
	t      testing.TB
	ground *process.Ground
	server *process.Server
	places [agents + 1]place // by number; 0 is nobody's
	port   int               // of the endpoints
	agents [agents + 1]*process.Agent
}

// place is where an agent runs.
type place struct {
	host string // address of its listeners
	in   func(f func())
}

// newWorld makes the places, with an endpoint in each, and a server.
func newWorld(t testing.TB, mode string, args ...string) *world {
	t.Helper()
	w := &world{t: t}
	host := "127.0.0.1"
	if namespaces() {
		host = "10.99.0.1"
		ip(t, "link", "set", "lo", "up")
		ip(t, "addr", "replace", host+"/32", "dev", "lo")
	}
	w.port = process.FreePorts(t, host, 1)[0]
	if namespaces() {
		for i := 1; i <= agents; i++ {
			w.places[i] = w.newPlace(i, host)
		}
	} else {
		w.endpoint("somebody")
		for i := range w.places {
			w.places[i] = place{host, func(f func()) { f() }}
		}
	}
	w.ground = process.NewGround(t, host)
	w.server = w.ground.StartServer(process.ServerOptions{Mode: mode, Host: host, Args: append([]string{"--proxy-strategies=destCIDR,default"}, args...)})
	return w
}

// newPlace makes a namespace for agent i, from which it reaches the server through
// a pair of virtual interfaces, and its subnets, which are its own loopback; and
// nothing else.
func (w *world) newPlace(i int, server string) place {
	w.t.Helper()
	home, away := thisNamespace(w.t), newNamespace(w.t)
	near, far := fmt.Sprintf("10.99.%d.1", i), fmt.Sprintf("10.99.%d.2", i)
	name := fmt.Sprintf("agent%d", i)
	away.do(func() {
		ip(w.t, "link", "add", "uplink", "type", "veth", "peer", "name", name, "netns", home.path())
	})
	w.t.Cleanup(func() { ip(w.t, "link", "delete", name) })
	ip(w.t, "addr", "add", near+"/30", "dev", name)
	ip(w.t, "link", "set", name, "up")
	away.do(func() {
		ip(w.t, "addr", "add", far+"/30", "dev", "uplink")
		ip(w.t, "link", "set", "uplink", "up")
		ip(w.t, "route", "add", server+"/32", "via", near)
		for _, subnet := range []int{i, shared, uncovered} {
			ip(w.t, "addr", "add", fmt.Sprintf("10.50.%d.1/24", subnet), "dev", "lo")
		}
		w.endpoint(strconv.Itoa(i))
	})
	return place{far, away.do}
}

// endpoint serves, in the caller's namespace and at all its addresses, connections
// that are told name and a line's end, and hear an echo after it.
func (w *world) endpoint(name string) {
	w.t.Helper()
	listener, err := net.Listen("tcp4", fmt.Sprintf("0.0.0.0:%d", w.port))
	if err != nil {
		w.t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				if _, err := io.WriteString(conn, name+"\n"); err == nil {
					io.Copy(conn, conn)
				}
			})
		}
	})
	w.t.Cleanup(func() {
		listener.Close()
		serving.Wait() // the agents have ended by now, and with them their connections
	})
}

// address is one in a subnet, with the endpoints' port.
func (w *world) address(subnet, host int) string {
	format := "127.50.%d.%d:%d"
	if namespaces() {
		format = "10.50.%d.%d:%d"
	}
	return fmt.Sprintf(format, subnet, host, w.port)
}

// prefixes are the identifiers of an agent that covers subnets.
func (w *world) prefixes(subnets ...int) string {
	var list []string
	for _, s := range subnets {
		host, _, _ := net.SplitHostPort(w.address(s, 0))
		list = append(list, "cidr="+host+"/24")
	}
	return strings.Join(list, "&")
}

// start runs agent i, beside an older one if there is one, and returns when both
// are backends or on their way out.
func (w *world) start(i int, identifiers string, args ...string) {
	w.t.Helper()
	before := w.server.Metric(joined)
	p := w.places[i]
	w.agents[i] = w.ground.StartAgent(process.AgentOptions{
		ID:      fmt.Sprintf("agent-%d", i),
		Servers: []*process.Server{w.server},
		Host:    p.host,
		In:      p.in,
		Args:    append([]string{"--agent-identifiers=" + identifiers}, args...),
	})
	process.Eventually(w.t, hang, fmt.Sprintf("agent %d is a backend", i), func() bool { return w.server.Metric(joined) == before+1 })
}

// Series that tests look at.
const (
	joined   = `culvert_server_backend_links{proxy_strategy="destCIDR"}`
	draining = `culvert_server_agent_links{state="draining"}`
	dials    = "konnectivity_network_proxy_agent_dial_duration_seconds_count"
)
