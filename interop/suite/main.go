package suite

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/culvert-proxy/culvert/rig/process"
)

// binVariable tells rig/process where the programs are.
const binVariable = "CULVERT_TEST_BIN"

// Main is every version's TestMain: it builds the programs, in the root module
// and as they are released, not with this module's versions of what they need.
func Main(m *testing.M) int {
	if os.Getenv(binVariable) == "" {
		dir, err := os.MkdirTemp("", "culvert-bin-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if err := build(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		os.Setenv(binVariable, dir)
	}
	quiet()
	return process.Main(m)
}

// quiet drops the library's log, which has an error for each of the bytes that
// it loses, thousands in all.
func quiet() {
	klog.SetLogger(logr.Discard())
}

// build compiles the programs into dir.
func build(dir string) error {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/culvert-proxy/culvert").Output()
	if err != nil {
		return fmt.Errorf("find the root module: %w", err)
	}
	cmd := exec.Command("go", "build", "-o", dir+"/", "./cmd/proxy-server", "./cmd/proxy-agent")
	cmd.Dir = strings.TrimSpace(string(root))
	cmd.Env = append(os.Environ(), "GOWORK=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return nil
}
