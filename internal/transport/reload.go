package transport

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultCheckInterval is how often files are looked at, at most.
const DefaultCheckInterval = time.Second

// reloader keeps what was made of some files, and makes it anew when their
// contents change. It has no goroutine: whoever needs the value looks at the
// files, at most once per interval. Contents are compared, not times and sizes,
// so that no way of replacing a file is missed. Safe for concurrent use.
type reloader[T any] struct {
	// Fixed after construction.
	files    []string
	parse    func(contents [][]byte) (*T, error)
	interval time.Duration
	report   func(error)

	current atomic.Pointer[T]

	// Guarded by mu.
	mu      sync.Mutex
	checked time.Time
	tried   [sha256.Size]byte // the contents that were parsed last, good or not
	failure string            // the last error that was reported
	unread  bool              // the files could not be read when last looked at
}

// newReloader reads the files for the first time; an error ends the start.
// report may be nil; later it is told of each change: nil when new contents came
// into use, else why they cannot be used. The same error is reported once.
func newReloader[T any](files []string, interval time.Duration, report func(error), parse func([][]byte) (*T, error)) (*reloader[T], error) {
	if interval == 0 {
		interval = DefaultCheckInterval
	}
	if report == nil {
		report = func(error) {}
	}
	r := &reloader[T]{files: files, parse: parse, interval: interval, report: report}
	contents, sum, err := readFiles(files)
	if err != nil {
		return nil, err
	}
	v, err := parse(contents)
	if err != nil {
		return nil, err
	}
	r.current.Store(v)
	r.tried, r.checked = sum, time.Now()
	return r, nil
}

// get returns the newest value that can be used. One caller at a time looks at
// the files; the others do not wait for it.
func (r *reloader[T]) get() *T {
	if r.mu.TryLock() {
		r.refresh()
		r.mu.Unlock()
	}
	return r.current.Load()
}

// refresh looks at the files if it is time. mu is held.
func (r *reloader[T]) refresh() {
	now := time.Now()
	if now.Sub(r.checked) < r.interval {
		return
	}
	r.checked = now
	contents, sum, err := readFiles(r.files)
	if err != nil {
		r.unread = true
		r.failed(err)
		return
	}
	if sum == r.tried {
		if r.unread {
			r.unread, r.failure = false, ""
		}
		return
	}
	r.tried, r.unread = sum, false
	v, err := r.parse(contents)
	if err != nil {
		r.failed(err)
		return
	}
	r.current.Store(v)
	r.failure = ""
	r.report(nil)
}

// failed reports err unless it was the last one reported. mu is held.
func (r *reloader[T]) failed(err error) {
	if text := err.Error(); text != r.failure {
		r.failure = text
		r.report(err)
	}
}

// readFiles returns the contents of all files and a digest of them.
func readFiles(files []string) ([][]byte, [sha256.Size]byte, error) {
	h := sha256.New()
	contents := make([][]byte, len(files))
	for i, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, [sha256.Size]byte{}, fmt.Errorf("read %q: %w", name, cause(err))
		}
		contents[i] = b
		_ = binary.Write(h, binary.BigEndian, int64(len(b)))
		h.Write(b)
	}
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	return contents, sum, nil
}
