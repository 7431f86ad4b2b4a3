// Package process runs the real proxy-server and proxy-agent as processes on
// loopback for tests: certificates, ports, readiness, signals, exit statuses.
// It ends only what it started, by its id.
package process

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// HangLimit bounds every wait of this package. It is no speed test: what takes
// longer does not come.
const HangLimit = 60 * time.Second

// Process is one running program. Its methods are safe for concurrent use.
type Process struct {
	// Fixed after construction.
	Name string
	t    testing.TB
	cmd  *exec.Cmd
	done chan struct{}

	// Guarded by mu.
	mu     sync.Mutex
	output bytes.Buffer
}

// Start runs a program until the test ends, at the latest.
func Start(t testing.TB, name, path string, args ...string) *Process {
	t.Helper()
	p := &Process{Name: name, t: t, cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p, p
	p.cmd.Env = append(os.Environ(), "GOTRACEBACK=all")
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		p.cmd.Wait() //nolint:errcheck // the status is read from ProcessState
		close(p.done)
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("end of the log of %s:\n%s", name, p.tail(60))
		}
		if log := p.Log(); strings.Contains(log, "DATA RACE") || strings.Contains(log, "panic: ") || strings.Contains(log, "fatal error: ") {
			t.Errorf("%s crashed or raced:\n%s", name, log)
		}
	})
	return p
}

// Write keeps the program's output.
func (p *Process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.Write(b)
}

// Log is everything that the program wrote so far.
func (p *Process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

func (p *Process) tail(n int) string {
	lines := slices.DeleteFunc(strings.Split(p.Log(), "\n"), func(line string) bool {
		return strings.Contains(line, `"option" flag=`) // the whole command line; seldom the cause
	})
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends sig; a process that has ended already is no error.
func (p *Process) Signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("signal %v to %s: %v", sig, p.Name, err)
	}
}

// Kill ends the process with SIGKILL and waits for it.
func (p *Process) Kill() {
	p.cmd.Process.Kill()                  //nolint:errcheck // it may have ended already
	p.cmd.Process.Signal(syscall.SIGCONT) //nolint:errcheck // a stopped one must be able to end
	<-p.done
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit waits for the process to end by itself and returns its status.
func (p *Process) Exit(limit time.Duration) int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		p.t.Fatalf("%s does not end within %v; its log:\n%s", p.Name, limit, p.tail(60))
		return -1
	}
}

// Eventually waits until ok returns true, looking again every few
// milliseconds, and fails the test after limit.
func Eventually(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	if !Within(limit, ok) {
		t.Fatalf("not within %v: %s", limit, what)
	}
}

// Within reports whether ok returned true before limit passed.
func Within(limit time.Duration, ok func() bool) bool {
	end := time.After(limit)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok() {
			return true
		}
		select {
		case <-end:
			return ok()
		case <-tick.C:
		}
	}
}
