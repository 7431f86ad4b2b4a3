package transport

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// withUmask sets the process's umask for one test; tests of this package do not
// run in parallel.
func withUmask(t *testing.T, mask int) {
	t.Helper()
	old := syscall.Umask(mask)
	t.Cleanup(func() { syscall.Umask(old) })
}

func socketPath(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "s")
}

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode()
}

func TestUnixSocketMode(t *testing.T) {
	for _, mask := range []int{0, 0o022, 0o077, 0o777} {
		path := socketPath(t)
		withUmask(t, mask)
		l, err := ListenUnix(t.Context(), path, true)
		syscall.Umask(0o022)
		if err != nil {
			t.Fatalf("umask %o: %v", mask, err)
		}
		if got := mode(t, path); got != fs.ModeSocket|UnixMode {
			t.Errorf("umask %o: mode %v, want %v", mask, got, fs.ModeSocket|UnixMode)
		}
		if err := l.Close(); err != nil {
			t.Errorf("umask %o: close: %v", mask, err)
		}
	}
}

// The socket must not be open to all even for the moment before its mode is set.
func TestUnixSocketIsBornNarrow(t *testing.T) {
	withUmask(t, 0)
	path := socketPath(t)
	lc := net.ListenConfig{Control: limitMode}
	l, err := lc.Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := mode(t, path).Perm(); got&^UnixMode != 0 {
		t.Errorf("born with mode %v, more than %v", got, UnixMode)
	}
}

func TestUnixListenerAcceptsAndRemovesItsFile(t *testing.T) {
	path := socketPath(t)
	l, err := ListenUnix(t.Context(), path, false)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, ok := s.(*net.UnixConn); !ok {
		t.Errorf("accepted a %T; gRPC needs the kernel's own type", s)
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("socket is still there: %v", err)
	}
}

func TestUnixSuccessorKeepsItsFile(t *testing.T) {
	path := socketPath(t)
	first, err := ListenUnix(t.Context(), path, true)
	if err != nil {
		t.Fatal(err)
	}
	second, err := ListenUnix(t.Context(), path, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the successor's socket went with its predecessor: %v", err)
	}
	c.Close()
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("socket is still there: %v", err)
	}
}

func TestUnixExistingPath(t *testing.T) {
	file := func(path string) error { return os.WriteFile(path, nil, 0o600) }
	full := func(path string) error {
		return errors.Join(os.Mkdir(path, 0o700), os.WriteFile(filepath.Join(path, "x"), nil, 0o600))
	}
	tests := []struct {
		name    string
		make    func(path string) error
		remove  bool
		wantErr string
	}{
		{"file removed", file, true, ""},
		{"empty directory removed", func(path string) error { return os.Mkdir(path, 0o700) }, true, ""},
		{"file kept", file, false, "address already in use"},
		{"directory that is not empty", full, true, "directory not empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := socketPath(t)
			if err := tt.make(path); err != nil {
				t.Fatal(err)
			}
			l, err := ListenUnix(t.Context(), path, tt.remove)
			if err == nil {
				l.Close()
			}
			switch {
			case tt.wantErr == "" && err != nil:
				t.Fatal(err)
			case tt.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tt.wantErr) || !strings.Contains(err.Error(), path)):
				t.Fatalf("error %v, want the path and %q", err, tt.wantErr)
			}
		})
	}
}

func TestUnixMissingDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "no", "s")
	if l, err := ListenUnix(t.Context(), path, true); err == nil || !strings.Contains(err.Error(), "no such file") {
		if err == nil {
			l.Close()
		}
		t.Fatalf("error %v", err)
	}
}
