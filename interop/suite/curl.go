package suite

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"testing"
)

// Curl fetches a page through the CONNECT frontend with Debian's curl, over
// mutual TLS.
func Curl(t *testing.T) {
	s := newStage(t, "http-connect", true, peers{})
	const size = 8 << 20
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.CopyN(w, stream(), size)
	}))
	defer page.Close()
	cmd := exec.Command("curl", "--silent", "--show-error", "--fail", "--max-time", "60", "--proxytunnel",
		"--proxy", "https://"+s.server.Frontend, "--proxy-cacert", s.ground.CA,
		"--proxy-cert", s.ground.Client.Cert, "--proxy-key", s.ground.Client.Key, page.URL)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	got, err := sumOf(out, size)
	if err != nil || got != sum(size) {
		t.Errorf("the page is not what was served: %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("curl: %v", err)
	}
}
