package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/culvert-proxy/culvert/internal/certs"
)

// demoStage is a whole installation on loopback: one server for each frontend,
// two agents that are connected to both, and an endpoint, all real processes.
type demoStage struct {
	dir       string
	bin       string // folder of the programs
	ca        string
	server    certs.Pair
	agent     certs.Pair
	agentPort int
	fronts    []demoFront
	web, echo string // the endpoint's addresses
	processes []*child
	urls      []string
}

// demoFront is one server's way in.
type demoFront struct {
	mode   string
	host   string // the loopback address of its server
	socket string
	ready  string // URL
}

// child is a process of the demo; the last lines of its log are kept.
type child struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
	err  error // set before done is closed

	// Guarded by mu.
	mu  sync.Mutex
	log bytes.Buffer
}

// Write keeps what the process logs.
func (c *child) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.log.Len() > 1<<20 {
		c.log.Reset()
	}
	return c.log.Write(p)
}

func (c *child) lastLines(n int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(c.log.String()), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func newDemoStage(ctx context.Context) (*demoStage, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &demoStage{bin: filepath.Dir(self)}
	if s.dir, err = os.MkdirTemp("", "culvert-demo-"); err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{s.certificates, s.startEndpoint, s.startServers, s.startAgents} {
		if err := step(ctx); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *demoStage) certificates(context.Context) error {
	authority, err := certs.New(s.dir, "demo-ca")
	if err != nil {
		return err
	}
	s.ca = authority.CA()
	if s.server, err = authority.Server("proxy-server", "127.0.0.1", "127.0.0.2", "localhost"); err != nil {
		return err
	}
	s.agent, err = authority.Client("proxy-agent")
	return err
}

// spawn starts a program. It is ended by its id, at the latest with the demo.
func (s *demoStage) spawn(name, program string, stdout io.Writer, args ...string) error {
	c := &child{name: name, cmd: exec.Command(program, args...), done: make(chan struct{})} //nolint:noctx // it is stopped in order, by close
	c.cmd.Stderr = c
	c.cmd.Stdout = io.Writer(c)
	if stdout != nil {
		c.cmd.Stdout = stdout
	}
	if err := c.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w (build it with `make build`)", name, err)
	}
	go func() {
		c.err = cmp.Or(c.cmd.Wait(), errors.New("status 0"))
		close(c.done)
	}()
	s.processes = append(s.processes, c)
	return nil
}

func (s *demoStage) startEndpoint(context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	reader, writer := io.Pipe()
	defer reader.Close()
	if err := s.spawn("endpoint", self, writer, "demo-endpoint"); err != nil {
		return err
	}
	line, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil {
		return err
	}
	var found bool
	if s.web, s.echo, found = strings.Cut(strings.TrimSpace(line), " "); !found {
		return fmt.Errorf("the endpoint said %q", line)
	}
	return nil
}

// startServers: each server has a loopback address of its own, so that both can
// use the same agent port and agents find them like replicas.
func (s *demoStage) startServers(ctx context.Context) error {
	ports, err := freePorts(ctx, 5)
	if err != nil {
		return err
	}
	s.agentPort = ports[0]
	for i, front := range []demoFront{{mode: "http-connect", host: "127.0.0.1"}, {mode: "grpc", host: "127.0.0.2"}} {
		health, admin := ports[1+2*i], ports[2+2*i]
		front.socket = filepath.Join(s.dir, front.mode+".sock")
		front.ready = fmt.Sprintf("http://%s:%d/readyz", front.host, health)
		if err := s.spawn("proxy-server "+front.mode, filepath.Join(s.bin, "proxy-server"), nil,
			"--mode="+front.mode, "--uds-name="+front.socket, "--server-port=0", "--server-count=2",
			"--server-id=server-"+front.mode,
			"--agent-bind-address="+front.host, "--agent-port="+strconv.Itoa(s.agentPort),
			"--health-bind-address="+front.host, "--health-port="+strconv.Itoa(health),
			"--admin-bind-address="+front.host, "--admin-port="+strconv.Itoa(admin), "--enable-profiling",
			"--cluster-cert="+s.server.Cert, "--cluster-key="+s.server.Key, "--cluster-ca-cert="+s.ca, "-v=1"); err != nil {
			return err
		}
		s.fronts = append(s.fronts, front)
		s.urls = append(s.urls,
			fmt.Sprintf("server %-12s  http://%s:%d/statusz  http://%s:%d/metrics", front.mode, front.host, admin, front.host, health))
	}
	return nil
}

func (s *demoStage) startAgents(ctx context.Context) error {
	ports, err := freePorts(ctx, 4)
	if err != nil {
		return err
	}
	for i := range 2 {
		health, admin := ports[2*i], ports[2*i+1]
		if err := s.spawn(fmt.Sprintf("proxy-agent %d", i+1), filepath.Join(s.bin, "proxy-agent"), nil,
			"--proxy-server-host=127.0.0.1,127.0.0.2", "--proxy-server-port="+strconv.Itoa(s.agentPort),
			fmt.Sprintf("--agent-id=agent-%d", i+1), "--ca-cert="+s.ca, "--agent-cert="+s.agent.Cert, "--agent-key="+s.agent.Key,
			"--health-server-host=127.0.0.1", "--health-server-port="+strconv.Itoa(health),
			"--admin-server-port="+strconv.Itoa(admin), "--sync-interval=200ms", "-v=1"); err != nil {
			return err
		}
		s.urls = append(s.urls,
			fmt.Sprintf("agent-%d              http://127.0.0.1:%d/statusz  http://127.0.0.1:%d/metrics", i+1, admin, health))
	}
	for _, front := range s.fronts {
		if err := s.await(ctx, front.ready); err != nil {
			return err
		}
	}
	return nil
}

// await polls url until it answers 200, a process ends, or half a minute passed.
func (s *demoStage) await(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("not ready within 30s"))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		if err := s.dead(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", url, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// dead reports a process that ended, with the end of its log.
func (s *demoStage) dead() error {
	for _, c := range s.processes {
		select {
		case <-c.done:
			return fmt.Errorf("%s ended (%w); its last words:\n%s", c.name, c.err, c.lastLines(5))
		default:
		}
	}
	return nil
}

// close stops every process, the newest first, and removes the folder.
func (s *demoStage) close() {
	for i := len(s.processes) - 1; i >= 0; i-- {
		c := s.processes[i]
		c.cmd.Process.Signal(os.Interrupt) //nolint:errcheck // it may have ended already
		select {
		case <-c.done:
		case <-time.After(2 * time.Second):
			c.cmd.Process.Kill() //nolint:errcheck // the same
			<-c.done
		}
	}
	os.RemoveAll(s.dir) //nolint:errcheck // a leftover in the temporary folder harms nobody
}

// freePorts finds n ports that are free on both loopback addresses of the demo.
func freePorts(ctx context.Context, n int) ([]int, error) {
	var config net.ListenConfig
	ports := make([]int, 0, n)
	for len(ports) < n {
		one, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer one.Close() // held until all are found, so that they differ
		port := one.Addr().(*net.TCPAddr).Port
		two, err := config.Listen(ctx, "tcp", fmt.Sprintf("127.0.0.2:%d", port))
		if err != nil {
			continue
		}
		two.Close()
		ports = append(ports, port)
	}
	return ports, nil
}
