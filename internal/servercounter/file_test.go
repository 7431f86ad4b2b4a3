package servercounter

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
)

// fakeWatcher is told of changes by the test.
type fakeWatcher struct {
	changes chan string
	errors  chan error
	dirs    []string
	closed  bool
}

func newFakeWatcher() *fakeWatcher {
	return &fakeWatcher{changes: make(chan string), errors: make(chan error)}
}

func (w *fakeWatcher) Add(dir string) error {
	if !slices.Contains(w.dirs, dir) {
		w.dirs = append(w.dirs, dir)
	}
	return nil
}

func (w *fakeWatcher) Remove(dir string) error {
	w.dirs = slices.DeleteFunc(w.dirs, func(d string) bool { return d == dir })
	return nil
}
func (w *fakeWatcher) Changes() <-chan string { return w.changes }
func (w *fakeWatcher) Errors() <-chan error   { return w.errors }
func (w *fakeWatcher) Close() error           { w.closed = true; return nil }

// failed counts failures.
type failed struct{ n atomic.Int64 }

func (f *failed) CountingFailed(string, error) { f.n.Add(1) }

// lines collects log lines.
type lines struct {
	mu   sync.Mutex
	text []string
}

func (l *lines) add(_, args string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, args)
}

func (l *lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.text
	l.text = nil
	return text
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFileContents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "count")
	for text, want := range map[string]int{
		"3": 3, "3\n": 3, " \t7\r\n": 7, "0": 0, "+4": 4,
		"": -1, "\n": -1, "x": -1, "3 4": -1, "-1": -1, "1.5": -1, "99999999999": -1, strings.Repeat("1", maxFileSize+1): -1,
	} {
		write(t, path, text)
		f := NewFile(FileConfig{Path: path, Fallback: 9})
		if want < 0 {
			if f.Err() == nil || f.CountServers() != 9 {
				t.Errorf("%.20q: %d, error %v", text, f.CountServers(), f.Err())
			}
		} else if f.Err() != nil || f.CountServers() != want {
			t.Errorf("%.20q: %d, want %d; error %v", text, f.CountServers(), want, f.Err())
		}
	}
	if f := NewFile(FileConfig{Path: t.TempDir(), Fallback: 2}); f.Err() == nil || f.CountServers() != 2 {
		t.Error("a directory was read")
	}
}

// TestFileInFakeTime: told changes, untold ones, bad content, and what is said of it.
func TestFileInFakeTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "count")
	synctest.Test(t, func(t *testing.T) {
		var changes atomic.Int64
		var logged lines
		failures, w := &failed{}, newFakeWatcher()
		f := NewFile(FileConfig{Path: path, Fallback: 1, Poll: 30 * time.Second, Settle: 50 * time.Millisecond,
			Changed: func() { changes.Add(1) }, Reporter: failures,
			Logger:     funcr.New(logged.add, funcr.Options{}),
			NewWatcher: func() (Watcher, error) { return w, nil }})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- f.Run(ctx) }()
		expect := func(what string, count int, changed int64, lines int) {
			t.Helper()
			synctest.Wait()
			if got := f.CountServers(); got != count {
				t.Errorf("%s: count %d, want %d", what, got, count)
			}
			if got := changes.Swap(0); got != changed {
				t.Errorf("%s: %d changes, want %d", what, got, changed)
			}
			if got := logged.take(); len(got) != lines {
				t.Errorf("%s: %d lines, want %d: %q", what, len(got), lines, got)
			}
		}
		tell := func() {
			w.changes <- path
			elapse(50 * time.Millisecond)
		}
		expect("missing at first", 1, 0, 1)
		elapse(time.Hour) // polls fail alike: counted, and not logged again
		expect("missing for long", 1, 0, 0)
		if n := failures.n.Swap(0); n < 100 {
			t.Errorf("%d failures were counted", n)
		}
		write(t, path, "3")
		tell()
		expect("written", 3, 1, 2)
		write(t, path, "x")
		tell()
		expect("bad", 3, 0, 1)
		write(t, path, "y")
		tell()
		expect("bad in another way", 3, 0, 1)
		write(t, path, "3")
		tell()
		expect("good again", 3, 0, 1)

		write(t, path, "") // emptied, then written: read once it is quiet
		w.changes <- path
		elapse(40 * time.Millisecond)
		write(t, path, "5")
		w.changes <- path
		elapse(40 * time.Millisecond)
		expect("not quiet yet", 3, 0, 0)
		elapse(10 * time.Millisecond)
		expect("quiet", 5, 1, 1)

		write(t, path, "6")
		w.changes <- path + ".other"
		elapse(time.Second)
		expect("another file changed", 5, 0, 0)
		elapse(30 * time.Second)
		expect("polled", 6, 1, 1)
		write(t, path, "7")
		w.errors <- errors.New("events were lost")
		elapse(50 * time.Millisecond)
		expect("lost events", 7, 1, 1)

		close(w.changes)
		synctest.Wait()
		write(t, path, "8")
		elapse(30 * time.Second)
		expect("without its watcher", 8, 1, 1)
		cancel()
		must(t, <-done)
		if !w.closed {
			t.Error("the watcher was not closed")
		}
	})
}

func TestFileWithoutAWatcher(t *testing.T) {
	path := filepath.Join(t.TempDir(), "count")
	write(t, path, "2")
	synctest.Test(t, func(t *testing.T) {
		f := NewFile(FileConfig{Path: path, NewWatcher: func() (Watcher, error) { return nil, errors.New("no inotify") }})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- f.Run(ctx) }()
		synctest.Wait()
		write(t, path, "4")
		elapse(30 * time.Second)
		synctest.Wait()
		if got := f.CountServers(); got != 4 {
			t.Errorf("count %d", got)
		}
		cancel()
		must(t, <-done)
	})
}

// TestFileOnDisk changes a real file in all the ways that files are changed; the
// number must arrive by events alone.
func TestFileOnDisk(t *testing.T) {
	dir := t.TempDir()
	at := func(parts ...string) string { return filepath.Join(append([]string{dir}, parts...)...) }
	// A ConfigMap volume: mount/count -> ..data/count, ..data -> ..1.
	must(t, os.MkdirAll(at("mount", "..1"), 0o700))
	write(t, at("mount", "..1", "count"), "1")
	must(t, os.Symlink("..1", at("mount", "..data")))
	must(t, os.Symlink("..data/count", at("mount", "count")))
	// And a link of somebody's own to it.
	must(t, os.Symlink(at("mount", "count"), at("link")))

	changed := make(chan struct{}, 1)
	f := NewFile(FileConfig{Path: at("link"), Poll: time.Hour, Settle: time.Millisecond, Changed: func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- f.Run(ctx) }()

	swap := func(next string, text string) {
		must(t, os.MkdirAll(at("mount", next), 0o700))
		write(t, at("mount", next, "count"), text)
		must(t, os.Symlink(next, at("mount", "..data_tmp")))
		must(t, os.Rename(at("mount", "..data_tmp"), at("mount", "..data")))
	}
	for want, act := range []func(){
		2: func() { swap("..2", "2"); must(t, os.RemoveAll(at("mount", "..1"))) },
		3: func() { swap("..3", "3") },
		4: func() { write(t, at("mount", "..3", "count"), "4") },
		5: func() {
			write(t, at("mount", "..3", "new"), "5")
			must(t, os.Rename(at("mount", "..3", "new"), at("mount", "..3", "count")))
		},
		6: func() {
			write(t, at("plain"), "6")
			must(t, os.Remove(at("link")))
			must(t, os.Rename(at("plain"), at("link")))
		},
		7: func() {
			must(t, os.Remove(at("link")))
			write(t, at("link"), "7")
		},
	} {
		if act == nil {
			continue
		}
		act()
		for f.CountServers() != want {
			select {
			case <-changed:
			case <-time.After(20 * time.Second):
				t.Fatalf("the number %d did not arrive: %d, %v", want, f.CountServers(), f.Err())
			}
		}
	}
	cancel()
	must(t, <-done)
}

func TestWatchPoints(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	at := func(parts ...string) string { return filepath.Join(append([]string{dir}, parts...)...) }
	must(t, os.MkdirAll(at("a", "b"), 0o700))
	must(t, os.Symlink("a/./b", at("rel")))
	must(t, os.Symlink(at("a"), at("abs")))
	must(t, os.Symlink("../rel/../file", at("a", "up")))
	must(t, os.Symlink("loop", at("loop")))
	write(t, at("a", "b", "file"), "1")
	for path, want := range map[string][]string{
		at("a", "b", "file"):   {at("a", "b", "file")},
		at("rel", "file"):      {at("rel"), at("a", "b", "file")},
		at("abs", "b", "file"): {at("abs"), at("a", "b", "file")},
		at("abs", "up"):        {at("abs"), at("a", "up"), at("rel"), at("a", "file")},
		at("none", "file"):     {at("none")},
		at("a", "none"):        {at("a", "none")},
	} {
		if got := watchPoints(path); !slices.Equal(got, want) {
			t.Errorf("%s: %q\nwant %q", path, got, want)
		}
	}
	if got := watchPoints(at("loop")); len(got) > maxLinks+1 {
		t.Errorf("a loop was followed %d times", len(got))
	}
}
