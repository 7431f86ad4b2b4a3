package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"github.com/culvert-proxy/culvert/internal/certs"
)

// dial reaches the endpoint by one of the ways under test.
type dial func(ctx context.Context) (net.Conn, error)

// stage is everything that runs beside the load: the endpoint, the yardstick,
// and servers with agents.
type stage struct {
	dir, bin    string
	ca          string
	server      certs.Pair
	client      certs.Pair
	endpoint    string
	near, far   *process
	relaySocket string
	processes   []*process
	connect     *culvert // HTTP CONNECT over a Unix socket
	grpc        *culvert // gRPC over a Unix socket
}

// culvert is one proxy-server with one proxy-agent.
type culvert struct {
	server, agent *process
	socket        string
	agentPort     string // where agents connect
	adminURL      string
}

func newStage(ctx context.Context, bin string) (*stage, error) {
	dir, err := os.MkdirTemp("", "culvert-bench-")
	if err != nil {
		return nil, err
	}
	s := &stage{dir: dir, bin: bin}
	if err := s.certificates(); err != nil {
		return s, err
	}
	if err := s.startEndpoint(ctx); err != nil {
		return s, err
	}
	return s, s.startRelay(ctx)
}

func (s *stage) certificates() error {
	authority, err := certs.New(s.dir, "bench-ca")
	if err != nil {
		return err
	}
	s.ca = authority.CA()
	if s.server, err = authority.Server("server", "127.0.0.1", "localhost"); err != nil {
		return err
	}
	s.client, err = authority.Client("client")
	return err
}

func (s *stage) keep(p *process, err error) (*process, error) {
	if err == nil {
		s.processes = append(s.processes, p)
	}
	return p, err
}

func (s *stage) startEndpoint(ctx context.Context) error {
	address, err := free(ctx)
	if err != nil {
		return err
	}
	p, err := s.keep(startSelf(ctx, "endpoint", "-listen", address))
	if err != nil {
		return err
	}
	s.endpoint = address
	return awaitListener(ctx, p, "tcp", address)
}

func (s *stage) startRelay(ctx context.Context) error {
	address, err := free(ctx)
	if err != nil {
		return err
	}
	s.far, err = s.keep(startSelf(ctx, "relay-far", "-listen", address, "-target", s.endpoint,
		"-cert", s.server.Cert, "-key", s.server.Key, "-ca", s.ca))
	if err != nil {
		return err
	}
	if err := awaitListener(ctx, s.far, "tcp", address); err != nil {
		return err
	}
	s.relaySocket = filepath.Join(s.dir, "relay.sock")
	s.near, err = s.keep(startSelf(ctx, "relay-near", "-listen", s.relaySocket, "-target", address,
		"-cert", s.client.Cert, "-key", s.client.Key, "-ca", s.ca))
	if err != nil {
		return err
	}
	return awaitListener(ctx, s.near, "unix", s.relaySocket)
}

// startCulvert runs a server in mode and an agent that reaches it through via,
// which maps the server's agent address to the one that the agent is told; nil
// means directly.
func (s *stage) startCulvert(ctx context.Context, mode string, via func(address string) (string, error)) (*culvert, error) {
	c := &culvert{socket: filepath.Join(s.dir, fmt.Sprintf("%s-%d.sock", mode, len(s.processes)))}
	ports, err := freePorts(ctx, 5)
	if err != nil {
		return nil, err
	}
	agentAddress := "127.0.0.1:" + ports[0]
	c.agentPort = ports[0]
	c.adminURL = "http://127.0.0.1:" + ports[2]
	c.server, err = s.keep(start(ctx, "proxy-server", filepath.Join(s.bin, "proxy-server"),
		"--mode="+mode, "--uds-name="+c.socket, "--server-port=0", "--agent-bind-address=127.0.0.1", "--agent-port="+ports[0],
		"--health-bind-address=127.0.0.1", "--health-port="+ports[1], "--admin-port="+ports[2],
		"--cluster-cert="+s.server.Cert, "--cluster-key="+s.server.Key, "--cluster-ca-cert="+s.ca, "-v=0"))
	if err != nil {
		return nil, err
	}
	if err := await(ctx, c.server, "http://127.0.0.1:"+ports[1]+"/healthz"); err != nil {
		return nil, err
	}
	target := agentAddress
	if via != nil {
		if target, err = via(agentAddress); err != nil {
			return nil, err
		}
	}
	_, port, err := net.SplitHostPort(target)
	if err != nil {
		return nil, err
	}
	c.agent, err = s.keep(start(ctx, "proxy-agent", filepath.Join(s.bin, "proxy-agent"),
		"--proxy-server-host=127.0.0.1", "--proxy-server-port="+port, "--ca-cert="+s.ca,
		"--agent-cert="+s.client.Cert, "--agent-key="+s.client.Key,
		"--health-server-host=127.0.0.1", "--health-server-port="+ports[3], "--admin-server-port="+ports[4], "-v=0"))
	if err != nil {
		return nil, err
	}
	return c, await(ctx, c.server, "http://127.0.0.1:"+ports[1]+"/readyz")
}

func freePorts(ctx context.Context, n int) ([]string, error) {
	ports := make([]string, n)
	for i := range ports {
		listener, err := listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close() // all are held until all are found, so that they differ
		ports[i] = strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

func (s *stage) close() {
	for _, p := range s.processes {
		p.stop()
	}
	os.RemoveAll(s.dir) //nolint:errcheck // a leftover in the temporary folder harms nobody
}

// viaRelay dials through the yardstick.
func (s *stage) viaRelay(ctx context.Context) (net.Conn, error) {
	var dialer net.Dialer
	return dialer.DialContext(ctx, "unix", s.relaySocket)
}

// viaConnect dials through c's HTTP CONNECT frontend.
func (s *stage) viaConnect(c *culvert) dial {
	return func(ctx context.Context) (net.Conn, error) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "unix", c.socket)
		if err != nil {
			return nil, err
		}
		if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", s.endpoint); err != nil {
			conn.Close()
			return nil, err
		}
		response, err := http.ReadResponse(bufio.NewReaderSize(onlyReader{conn}, 64), nil)
		if err != nil {
			conn.Close()
			return nil, err
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			conn.Close()
			return nil, fmt.Errorf("CONNECT %s: %s", s.endpoint, response.Status)
		}
		return conn, nil
	}
}

// onlyReader hides everything but Read. The endpoint never speaks first, so the
// buffered reader above holds the head and nothing else.
type onlyReader struct{ net.Conn }
