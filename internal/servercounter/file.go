package servercounter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
)

// maxFileSize is far more than a number needs.
const maxFileSize = 1024

// FileConfig is the configuration of a File counter.
type FileConfig struct {
	// Path of a file with a decimal number of 0 or more; blanks around it are fine.
	Path string
	// Fallback is the number before the file could be read.
	Fallback int
	// Poll is how often the file is read without being told of a change, for
	// file systems and mounts that tell nothing; 30 s if 0.
	Poll time.Duration
	// Settle is how long it must be quiet after a change, so that a file is not
	// read between being emptied and being written; 50 ms if 0.
	Settle time.Duration
	// Changed is called by Run when the number has become another. May be nil.
	Changed func()
	// Reporter counts failures. May be nil.
	Reporter Reporter
	// Logger takes one line for each change. The zero Logger discards.
	Logger logr.Logger
	// NewWatcher makes the watcher; that of the operating system if nil.
	NewWatcher func() (Watcher, error)
}

// File counts by a number in a file. It follows the file through writes, renames
// and the symbolic links of a Kubernetes ConfigMap; while its content is bad, the
// last good number holds.
type File struct {
	// Fixed after construction.
	cfg      FileConfig
	failures failures

	value atomic.Int64
}

// NewFile returns a counter that has read the file once. Run follows it.
func NewFile(cfg FileConfig) *File {
	if cfg.Poll == 0 {
		cfg.Poll = 30 * time.Second
	}
	if cfg.Settle == 0 {
		cfg.Settle = 50 * time.Millisecond
	}
	if cfg.NewWatcher == nil {
		cfg.NewWatcher = newSystemWatcher
	}
	f := &File{cfg: cfg, failures: failures{source: "file", logger: cfg.Logger, reporter: cfg.Reporter}}
	f.value.Store(int64(cfg.Fallback))
	f.read()
	return f
}

// CountServers returns the last good number.
func (f *File) CountServers() int { return int(f.value.Load()) }

// Err is why the file could not be read the last time; nil if it could.
func (f *File) Err() error { return f.failures.err() }

// Run follows the file until ctx ends, and returns nil then. Without a watcher it
// goes on with polling alone.
func (f *File) Run(ctx context.Context) error {
	poll := time.NewTicker(f.cfg.Poll)
	defer poll.Stop()
	w := newFollower(f.cfg)
	defer w.close()
	w.follow()
	f.reload()
	settle := time.NewTimer(f.cfg.Settle)
	settle.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case name, ok := <-w.changes():
			switch {
			case !ok:
				w.close() // polling goes on
			case w.concerns(name):
				settle.Reset(f.cfg.Settle)
			}
		case <-w.errors(): //nolint:errcheck // whatever it was, the file is read anew
			settle.Reset(f.cfg.Settle) // events may have been lost
		case <-settle.C:
			w.follow()
			f.reload()
		case <-poll.C:
			w.follow()
			f.reload()
		}
	}
}

// reload reads the file and tells of a change.
func (f *File) reload() {
	if f.read() && f.cfg.Changed != nil {
		f.cfg.Changed()
	}
}

// read reports whether the number has become another.
func (f *File) read() (changed bool) {
	n, err := readNumber(f.cfg.Path)
	f.failures.note(err)
	if err != nil {
		return false
	}
	before := int(f.value.Swap(int64(n)))
	if before != n {
		f.cfg.Logger.Info("The file has another server count", "path", f.cfg.Path, "before", before, "now", n)
	}
	return before != n
}

func readNumber(path string) (int, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() { // opening a named pipe would block
		return 0, fmt.Errorf("%s is not a regular file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFileSize+1))
	if err != nil {
		return 0, err
	}
	if len(text) > maxFileSize {
		return 0, fmt.Errorf("%s is too long for a number", path)
	}
	return parseNumber(string(text), path)
}

func parseNumber(text, path string) (int, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return 0, fmt.Errorf("%s is empty", path)
	}
	n, err := strconv.ParseInt(text, 10, 32)
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && n < 0:
		return 0, fmt.Errorf("%s: %.20q is not a number from 0 to %d", path, text, 1<<31-1)
	case err != nil:
		return 0, fmt.Errorf("%s: %.20q is not a number", path, text)
	}
	return int(n), nil
}
