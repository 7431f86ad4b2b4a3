package routing

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/culvert-proxy/culvert/rig/process"
)

// hang bounds waits whose length nobody promised.
const hang = process.HangLimit

// ownNetwork is set for the process that has a network namespace of its own.
const ownNetwork = "CULVERT_TEST_OWN_NETWORK"

// namespaces reports whether the tests may make network namespaces.
func namespaces() bool { return os.Getenv(ownNetwork) != "" }

// TestMain builds the programs, while there is still a network, and runs the tests
// in a process with a network namespace of its own.
func TestMain(m *testing.M) {
	os.Exit(process.Around(func() int {
		if namespaces() {
			return m.Run()
		}
		if why := trial(); why != "" {
			fmt.Fprintf(os.Stderr, "*** rig/routing: NO NETWORK NAMESPACES HERE (%s).\n*** The tests run on loopback and check less.\n", why)
			return m.Run()
		}
		return inside(os.Args[1:])
	}))
}

// apart makes a command that runs in a new network namespace.
func apart(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return cmd
}

// trial tries what the tests will do, and returns what does not work.
func trial() string {
	runtime.LockOSThread() // the child ends with the thread that started it
	defer runtime.UnlockOSThread()
	for _, args := range [][]string{
		{"ip", "link", "set", "lo", "up"},
		{"ip", "link", "add", "here", "type", "veth", "peer", "name", "there"},
	} {
		if out, err := apart(args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Sprintf("%v: %v: %s", args, err, bytes.TrimSpace(out))
		}
	}
	return ""
}

// inside runs this program again, in a new network namespace.
func inside(args []string) int {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cmd := apart(self, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), ownNetwork+"=1")
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
