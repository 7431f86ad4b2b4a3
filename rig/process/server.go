package process

import (
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/culvert-proxy/culvert/internal/certs"
)

// Ground is what the processes of one test share: a folder and certificates.
type Ground struct {
	t      testing.TB
	Dir    string
	CA     string
	Server certs.Pair // for servers, valid on all of 127.0.0.1 to 127.0.0.4, and where else NewGround was told
	Client certs.Pair // for agents and for clients of TCP frontends
	count  int
}

// NewGround makes the folder and the certificates. Servers may also be at hosts.
func NewGround(t testing.TB, hosts ...string) *Ground {
	t.Helper()
	// Not t.TempDir: a Unix socket's path must stay short.
	g := &Ground{t: t, Dir: shortDir(t)}
	authority, err := certs.New(g.Dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	g.CA = authority.CA()
	hosts = append(hosts, "127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "localhost")
	if g.Server, err = authority.Server("server", hosts...); err != nil {
		t.Fatal(err)
	}
	if g.Client, err = authority.Client("client"); err != nil {
		t.Fatal(err)
	}
	return g
}

// ServerOptions describe one proxy-server. Zero values are a gRPC frontend on a
// Unix socket with the agents' listener on 127.0.0.1.
type ServerOptions struct {
	Mode      string // grpc or http-connect
	TCP       bool   // frontend over TCP with mutual TLS
	ID        string
	Host      string // loopback address of all its listeners
	AgentPort int    // 0: a free one
	Args      []string
}

// Server is a running proxy-server.
type Server struct {
	*Process
	Mode     string
	ID       string
	Frontend string // path of the socket, or host:port
	TCP      bool
	Host     string
	Agents   int // port where agents connect
	Health   string
	Admin    string
}

// StartServer starts a proxy-server and waits until /healthz answers.
func (g *Ground) StartServer(o ServerOptions) *Server {
	g.t.Helper()
	g.count++
	s := &Server{Mode: o.Mode, ID: o.ID, TCP: o.TCP, Host: o.Host, Agents: o.AgentPort}
	if s.Mode == "" {
		s.Mode = "grpc"
	}
	if s.ID == "" {
		s.ID = fmt.Sprintf("server-%d", g.count)
	}
	if s.Host == "" {
		s.Host = "127.0.0.1"
	}
	ports := FreePorts(g.t, s.Host, 4)
	if s.Agents == 0 {
		s.Agents = ports[0]
	}
	s.Health = fmt.Sprintf("http://%s:%d", s.Host, ports[1])
	s.Admin = fmt.Sprintf("http://%s:%d", s.Host, ports[2])
	args := []string{
		"--mode=" + s.Mode, "--server-id=" + s.ID,
		"--agent-bind-address=" + s.Host, "--agent-port=" + strconv.Itoa(s.Agents),
		"--health-bind-address=" + s.Host, "--health-port=" + strconv.Itoa(ports[1]),
		"--admin-bind-address=" + s.Host, "--admin-port=" + strconv.Itoa(ports[2]),
		"--cluster-cert=" + g.Server.Cert, "--cluster-key=" + g.Server.Key, "--cluster-ca-cert=" + g.CA,
	}
	if o.TCP {
		s.Frontend = fmt.Sprintf("%s:%d", s.Host, ports[3])
		args = append(args, "--server-bind-address="+s.Host, "--server-port="+strconv.Itoa(ports[3]),
			"--server-cert="+g.Server.Cert, "--server-key="+g.Server.Key, "--server-ca-cert="+g.CA)
	} else {
		s.Frontend = filepath.Join(g.Dir, fmt.Sprintf("f%d.sock", g.count))
		args = append(args, "--uds-name="+s.Frontend, "--server-port=0")
	}
	s.Process = Start(g.t, "proxy-server "+s.ID, Program(g.t, "proxy-server"), append(args, o.Args...)...)
	s.await(s.Health + "/healthz")
	return s
}

// AwaitAgents waits until n backends are ready in the default strategy.
func (s *Server) AwaitAgents(n int) {
	s.t.Helper()
	Eventually(s.t, HangLimit, fmt.Sprintf("%d agents at %s", n, s.Name), func() bool {
		return s.Metric(`konnectivity_network_proxy_server_ready_backends{proxy_strategy="default"}`) == float64(n)
	})
}

// Metric reads one series from the server's /metrics; -1 if it is not there.
func (s *Server) Metric(series string) float64 { return metric(s.t, s.Health+"/metrics", series) }

// AgentOptions describe one proxy-agent.
type AgentOptions struct {
	ID      string
	Servers []*Server // it connects to all of them; their agent ports are the same
	Host    string    // address of its listeners; 127.0.0.1 if empty
	// In, if set, calls what starts the process where it belongs, such as on a
	// thread in another network namespace.
	In   func(start func())
	Args []string
}

// Agent is a running proxy-agent.
type Agent struct {
	*Process
	ID     string
	Health string
	Admin  string
}

// StartAgent starts a proxy-agent and waits until its health port answers.
func (g *Ground) StartAgent(o AgentOptions) *Agent {
	g.t.Helper()
	g.count++
	a := &Agent{ID: o.ID}
	if a.ID == "" {
		a.ID = fmt.Sprintf("agent-%d", g.count)
	}
	in := o.In
	if in == nil {
		in = func(start func()) { start() }
	}
	host := cmp.Or(o.Host, "127.0.0.1")
	var ports []int
	in(func() { ports = FreePorts(g.t, host, 2) })
	a.Health = fmt.Sprintf("http://%s:%d", host, ports[0])
	a.Admin = fmt.Sprintf("http://%s:%d", host, ports[1])
	args := []string{
		"--agent-id=" + a.ID, "--ca-cert=" + g.CA, "--agent-cert=" + g.Client.Cert, "--agent-key=" + g.Client.Key,
		"--health-server-host=" + host, "--health-server-port=" + strconv.Itoa(ports[0]),
		"--admin-bind-address=" + host, "--admin-server-port=" + strconv.Itoa(ports[1]), "--sync-interval=200ms",
	}
	for _, s := range o.Servers {
		args = append(args, "--proxy-server-host="+s.Host, "--proxy-server-port="+strconv.Itoa(s.Agents))
	}
	in(func() {
		a.Process = Start(g.t, "proxy-agent "+a.ID, Program(g.t, "proxy-agent"), append(args, o.Args...)...)
	})
	a.await(a.Health + "/healthz")
	return a
}

// Metric reads one series from the agent's /metrics; -1 if it is not there.
func (a *Agent) Metric(series string) float64 { return metric(a.t, a.Health+"/metrics", series) }

// await polls url until it answers 200 or the process ends.
func (p *Process) await(url string) {
	p.t.Helper()
	Eventually(p.t, HangLimit, p.Name+" answers at "+url, func() bool {
		select {
		case <-p.done:
			p.t.Fatalf("%s ended with status %d:\n%s", p.Name, p.cmd.ProcessState.ExitCode(), p.tail(20))
		default:
		}
		status, _, err := Get(url)
		return err == nil && status == http.StatusOK
	})
}

// Get fetches url with a limit.
func Get(url string) (status int, body string, err error) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// FreePorts finds n ports on host that nobody listens on just now, all different.
// They lie below those that the kernel gives to outgoing connections, and are
// chosen at random, so that tests that run side by side do not meet.
func FreePorts(t testing.TB, host string, n int) []int {
	t.Helper()
	const lowest, highest = 10000, 32000
	var ports []int
	for tries := 0; len(ports) < n; tries++ {
		port := lowest + rand.IntN(highest-lowest)
		listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err == nil {
			defer listener.Close() // held until all are found
			ports = append(ports, port)
		} else if tries > 1000 {
			t.Fatal(err)
		}
	}
	return ports
}
