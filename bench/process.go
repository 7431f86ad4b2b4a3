package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// process is a child of the benchmark, ended by its id with its parent's context.
type process struct {
	name string
	cmd  *exec.Cmd
	log  bytes.Buffer
}

// start runs a program; what it writes is kept to be shown when it fails.
func start(ctx context.Context, name, path string, args ...string) (*process, error) {
	p := &process{name: name, cmd: exec.CommandContext(ctx, path, args...)}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// startSelf runs this program again in one of its helper roles.
func startSelf(ctx context.Context, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return start(ctx, args[0], self, args...)
}

// stop ends the process and waits for it.
func (p *process) stop() {
	if p == nil || p.cmd.Process == nil {
		return
	}
	p.cmd.Process.Kill() //nolint:errcheck // it may have ended already
	p.cmd.Wait()         //nolint:errcheck // killed: that is no news
}

// cpu is the processor time that the process has used so far.
func (p *process) cpu() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// The second field is the name in brackets and may hold blanks.
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("unexpected /proc stat of %s", p.name)
	}
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	const ticksPerSecond = 100 // USER_HZ on Linux
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}

// resident is the memory in bytes that the process occupies.
func (p *process) resident() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no VmRSS of %s", p.name)
}

// free finds a TCP port on loopback that nobody listens on just now.
func free(ctx context.Context) (string, error) {
	listener, err := listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}

// await asks url until it answers 200, and shows p's log if it never does.
func await(ctx context.Context, p *process, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			io.Copy(io.Discard, response.Body) //nolint:errcheck // only the status counts
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("%s is not ready at %s; its log:\n%s", p.name, url, p.log.String())
}

// awaitListener waits until address takes connections.
func awaitListener(ctx context.Context, p *process, network, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var dialer net.Dialer
	for ctx.Err() == nil {
		conn, err := dialer.DialContext(ctx, network, address)
		if err == nil {
			return conn.Close()
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("%s does not listen on %s; its log:\n%s", p.name, address, p.log.String())
}
