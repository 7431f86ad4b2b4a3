package suite

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Version fails the test unless it is really version want of the library that it
// is built with: a requirement elsewhere could have raised it.
func Version(t *testing.T, want string) {
	list := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "sigs.k8s.io/apiserver-network-proxy/konnectivity-client")
	list.Env = append(os.Environ(), "GOWORK=off")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(out)); got != want {
		t.Errorf("built with the library's %s, want %s", got, want)
	}
}
