package suite

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/culvert-proxy/culvert/rig/process"
)

// hangLimit bounds whatever should come. It is no speed test.
const hangLimit = process.HangLimit

// peers says which side of the link speaks the plain protocol only.
type peers struct {
	oldServer, oldAgent bool
}

func (p peers) String() string {
	age := map[bool]string{true: "old", false: "new"}
	return "server=" + age[p.oldServer] + ",agent=" + age[p.oldAgent]
}

// stage is a server with one frontend, an agent and an endpoint.
type stage struct {
	*testing.T
	ground   *process.Ground
	server   *process.Server
	agent    *process.Agent
	endpoint *endpoint
}

// newStage starts all of them; they end with the test. flags are for both
// programs.
func newStage(t *testing.T, mode string, tcp bool, p peers, flags ...string) *stage {
	t.Helper()
	s := &stage{T: t, ground: process.NewGround(t), endpoint: newEndpoint(t)}
	const plain = "--disable-extensions"
	server := process.ServerOptions{Mode: mode, TCP: tcp, Args: slices.Clone(flags)}
	if p.oldServer {
		server.Args = append(server.Args, plain)
	}
	s.server = s.ground.StartServer(server)
	agent := process.AgentOptions{Servers: []*process.Server{s.server}, Args: slices.Clone(flags)}
	if p.oldAgent {
		agent.Args = append(agent.Args, plain)
	}
	s.agent = s.ground.StartAgent(agent)
	s.server.AwaitAgents(1)
	return s
}

// tls is a frontend client's configuration.
func (s *stage) tls() *tls.Config {
	s.Helper()
	pair, err := tls.LoadX509KeyPair(s.ground.Client.Cert, s.ground.Client.Key)
	if err != nil {
		s.Fatal(err)
	}
	text, err := os.ReadFile(s.ground.CA)
	if err != nil {
		s.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, RootCAs: pool, ServerName: "127.0.0.1"}
}

// settled waits until nothing is left of any tunnel: in the endpoint, the agent
// and the server.
func (s *stage) settled(limit time.Duration) {
	s.Helper()
	s.idle(limit)
	s.zero(limit, "connections at the endpoint", func() float64 { return float64(s.endpoint.open.Load()) })
}

// idle waits until the agent and the server have nothing left.
func (s *stage) idle(limit time.Duration) {
	s.Helper()
	const prefix = "konnectivity_network_proxy_"
	for _, series := range []string{"server_established_connections", "server_pending_backend_dials", `server_grpc_connections{service_method="Proxy"}`, "server_http_connections"} {
		s.zero(limit, series, func() float64 { return s.server.Metric(prefix + series) })
	}
	s.zero(limit, "agent_open_endpoint_connections", func() float64 { return s.agent.Metric(prefix + "agent_open_endpoint_connections") })
}

// zero waits until a gauge reads 0.
func (s *stage) zero(limit time.Duration, name string, read func() float64) {
	s.Helper()
	if !process.Within(limit, func() bool { return read() == 0 }) {
		s.Errorf("%s: %v are left after %v", name, read(), limit)
	}
}
