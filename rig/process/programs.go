package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// binVariable tells tests where Main put the programs.
const binVariable = "CULVERT_TEST_BIN"

// Main builds the programs once for all tests of a package, runs the tests and
// returns the exit status. A package's TestMain calls it:
//
//	func TestMain(m *testing.M) { os.Exit(process.Main(m)) }
func Main(m *testing.M) int { return Around(m.Run) }

// Around is Main for a package that runs its tests in a way of its own, such as
// in another process.
func Around(run func() int) int {
	if os.Getenv(binVariable) == "" {
		dir, err := os.MkdirTemp("", "culvert-bin-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir) //nolint:errcheck // a leftover in the temporary folder harms nobody
		if err := build(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		os.Setenv(binVariable, dir) //nolint:errcheck // a constant name and a plain path
		defer os.Unsetenv(binVariable)
	}
	return run()
}

// build compiles the programs. Their own race detector is on when
// CULVERT_TEST_RACE is set: it finds more and costs most of the speed.
func build(dir string) error {
	args := []string{"build", "-o", dir + "/"}
	if os.Getenv("CULVERT_TEST_RACE") != "" {
		args = append(args, "-race")
	}
	for _, name := range []string{"proxy-server", "proxy-agent", "culvert"} {
		args = append(args, "github.com/culvert-proxy/culvert/cmd/"+name)
	}
	out, err := exec.Command("go", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return nil
}

// Program is the path of a program that Main built.
func Program(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv(binVariable)
	if dir == "" {
		t.Fatalf("%s is not set: the package's TestMain must call process.Main", binVariable)
	}
	return filepath.Join(dir, name)
}
