package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/culvert-proxy/culvert/rig/process"
)

func TestMain(m *testing.M) { os.Exit(process.Main(m)) }

// TestDemoOnce runs the whole demonstration: real processes, all kinds of traffic.
func TestDemoOnce(t *testing.T) {
	p := process.Start(t, "culvert demo", process.Program(t, "culvert"), "demo", "--once", "--for=3s")
	if code := p.Exit(process.HangLimit); code != 0 {
		t.Fatalf("exit status %d:\n%s", code, p.Log())
	}
	for _, want := range []string{"/statusz", "/metrics", "http-connect", "grpc", "request", "bulk", "echo"} {
		if !strings.Contains(p.Log(), want) {
			t.Errorf("the output does not show %q:\n%s", want, p.Log())
		}
	}
}

// TestConnect joins standard input and output through each kind of frontend.
func TestConnect(t *testing.T) {
	g := process.NewGround(t)
	for _, c := range []struct {
		name string
		mode string
		tcp  bool
	}{
		{"gRPC over a Unix socket", "grpc", false}, {"gRPC over TCP", "grpc", true},
		{"CONNECT over a Unix socket", "http-connect", false}, {"CONNECT over TCP", "http-connect", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := g.StartServer(process.ServerOptions{Mode: c.mode, TCP: c.tcp})
			g.StartAgent(process.AgentOptions{Servers: []*process.Server{s}})
			s.AwaitAgents(1)
			args := []string{"connect", "--mode=" + c.mode, "--uds-name=" + s.Frontend}
			if c.tcp {
				args = []string{"connect", "--mode=" + c.mode, "--server=" + s.Frontend, "--ca-cert=" + g.CA, "--cert=" + g.Client.Cert, "--key=" + g.Client.Key}
			}
			answersAfterEOF(t, args)
			deliversAll(t, args)
			refuses(t, args)
		})
	}
}

func connectCommand(t *testing.T, args []string, address string, in io.Reader) (out []byte, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), process.HangLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, process.Program(t, "culvert"), append(args, address)...)
	var errs bytes.Buffer
	cmd.Stdin, cmd.Stderr = in, &errs
	out, err = cmd.Output()
	return out, errs.String(), err
}

// answersAfterEOF: the endpoint answers only when it has seen the end of input.
func answersAfterEOF(t *testing.T, args []string) {
	t.Helper()
	address := endpoint(t, func(conn net.Conn) {
		all, _ := io.ReadAll(conn)
		conn.Write([]byte("got " + string(all)))
	})
	out, stderr, err := connectCommand(t, args, address, strings.NewReader("hello"))
	if err != nil || string(out) != "got hello" {
		t.Errorf("answer %q, error %v, standard error %q", out, err, stderr)
	}
}

// deliversAll: what was read from standard input arrives although the process
// ends right after.
func deliversAll(t *testing.T, args []string) {
	t.Helper()
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MiB
	sum := make(chan [sha256.Size]byte, 1)
	address := endpoint(t, func(conn net.Conn) {
		all, _ := io.ReadAll(conn)
		sum <- sha256.Sum256(all)
	})
	if _, stderr, err := connectCommand(t, args, address, bytes.NewReader(data)); err != nil {
		t.Errorf("error %v, standard error %q", err, stderr)
	}
	select {
	case got := <-sum:
		if got != sha256.Sum256(data) {
			t.Error("the endpoint did not receive what was sent")
		}
	case <-time.After(process.HangLimit):
		t.Error("the endpoint never saw the end")
	}
}

// refuses: a failed dial is one line and an exit status.
func refuses(t *testing.T, args []string) {
	t.Helper()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	_, stderr, err := connectCommand(t, args, gone.Addr().String(), strings.NewReader(""))
	if err == nil || !strings.Contains(stderr, "refused") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("error %v, standard error %q", err, stderr)
	}
}

// endpoint serves one connection after another on loopback until the test ends.
func endpoint(t *testing.T, handle func(net.Conn)) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			handle(conn)
			conn.Close()
		}
	}()
	return listener.Addr().String()
}

func TestBadCommandLines(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "Usage"},
		{[]string{"fly"}, 2, `no command "fly"`},
		{[]string{"connect"}, 2, "HOST:PORT"},
		{[]string{"connect", "host"}, 1, "must be HOST:PORT"},
		{[]string{"connect", "host:1"}, 1, "--uds-name"},
		{[]string{"connect", "host:1", "--uds-name=/s", "--server=a:1"}, 1, "exclude"},
		{[]string{"connect", "host:1", "--uds-name=/s", "--mode=ftp"}, 1, "grpc, http-connect"},
		{[]string{"connect", "host:1", "--server=a:1"}, 1, "--ca-cert"},
		{[]string{"demo", "--twice"}, 1, "twice"},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), c.args, streams{strings.NewReader(""), &out, &errs})
		if code != c.code || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%q: status %d, standard error %q; want %d and %q", c.args, code, errs.String(), c.code, c.want)
		}
	}
}
