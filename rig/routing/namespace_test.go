package routing

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// namespace is a network namespace, kept by an open file: it ends with the test's
// process or, if that is later, with the processes in it.
type namespace struct {
	t    testing.TB
	file *os.File
}

// thisNamespace is the one that the caller is in.
func thisNamespace(t testing.TB) *namespace {
	t.Helper()
	file, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return &namespace{t, file}
}

// newNamespace makes one that has nothing but a loopback interface.
func newNamespace(t testing.TB) *namespace {
	t.Helper()
	var n *namespace
	onOwnThread(t, func() {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Errorf("make a network namespace: %v", err)
			return
		}
		n = thisNamespace(t)
		ip(t, "link", "set", "lo", "up")
	})
	return n
}

// path is the namespace as a file, for other processes.
func (n *namespace) path() string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd())
}

// do calls f on a thread in the namespace. Processes that f starts and sockets
// that it opens belong there.
func (n *namespace) do(f func()) {
	n.t.Helper()
	onOwnThread(n.t, func() {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			n.t.Errorf("enter a network namespace: %v", err)
			return
		}
		f()
	})
}

// onOwnThread calls f on a thread that ends with it, so that nobody else is ever
// moved into another namespace. A failure in f ends the test.
func onOwnThread(t testing.TB, f func()) {
	t.Helper()
	failed := t.Failed()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlock
		f()
	}()
	<-done
	if !failed && t.Failed() {
		t.FailNow()
	}
}

// ip runs the program of that name in the caller's namespace.
func ip(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v: %s", args, err, bytes.TrimSpace(out))
	}
}
