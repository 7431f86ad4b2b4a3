package servercounter

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// Watcher tells of changes in directories. Its methods are called by one
// goroutine.
type Watcher interface {
	// Add watches the entries of a directory, Remove stops it.
	Add(directory string) error
	Remove(directory string) error
	// Changes gives the path of each entry that changed: the directory as it was
	// added, and the name. It is closed when the watcher is.
	Changes() <-chan string
	// Errors tells of lost events.
	Errors() <-chan error
	Close() error
}

// maxLinks bounds how many symbolic links are followed, as the kernel does.
const maxLinks = 40

// watchPoints lists the directory entries whose change can change what path
// means: the file itself and every symbolic link on the way to it, with the
// links in their directories resolved.
func watchPoints(path string) []string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	sep := string(filepath.Separator)
	rest := strings.Split(strings.Trim(path, sep), sep)
	here, links := sep, 0
	var points []string
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == "" || name == "." {
			continue
		}
		if name == ".." {
			here = filepath.Dir(here)
			continue
		}
		at := filepath.Join(here, name)
		target, err := os.Readlink(at)
		isLink := err == nil
		if isLink || len(rest) == 0 {
			points = append(points, at)
		}
		if !isLink {
			if _, err := os.Lstat(at); err != nil {
				// It is not there yet. What is has been listed; this is what to wait for.
				return appendMissing(points, at)
			}
			here = at
			continue
		}
		if links++; links > maxLinks {
			return points
		}
		if filepath.IsAbs(target) {
			here = sep
		}
		rest = append(strings.Split(filepath.ToSlash(target), "/"), rest...)
	}
	return points
}

func appendMissing(points []string, at string) []string {
	if slices.Contains(points, at) {
		return points
	}
	return append(points, at)
}

// follower keeps a watcher on the points of one path. Without a watcher, or
// when it has failed, it does nothing.
type follower struct {
	cfg      FileConfig
	w        Watcher // nil if there is none
	points   []string
	watching []string
}

func newFollower(cfg FileConfig) *follower {
	w, err := cfg.NewWatcher()
	if err != nil {
		cfg.Logger.Error(err, "Cannot watch the server count file; it is read now and then", "path", cfg.Path, "every", cfg.Poll)
		w = nil
	}
	return &follower{cfg: cfg, w: w}
}

// follow brings the watched directories up to date. What cannot be watched now
// is tried again at the next call, which a poll makes sure of.
func (f *follower) follow() {
	if f.w == nil {
		return
	}
	f.points = watchPoints(f.cfg.Path)
	wanted := make([]string, 0, len(f.points))
	for _, p := range f.points {
		if dir := filepath.Dir(p); !slices.Contains(wanted, dir) {
			wanted = append(wanted, dir)
		}
	}
	for _, dir := range f.watching {
		if !slices.Contains(wanted, dir) {
			_ = f.w.Remove(dir) // a directory that is gone is not watched any more
		}
	}
	f.watching = f.watching[:0]
	for _, dir := range wanted {
		if err := f.w.Add(dir); err == nil { // adding again is harmless, and right for a directory that was replaced
			f.watching = append(f.watching, dir)
		}
	}
}

func (f *follower) concerns(changed string) bool { return slices.Contains(f.points, changed) }

// changes and errors block for ever without a watcher.
func (f *follower) changes() <-chan string {
	if f.w == nil {
		return nil
	}
	return f.w.Changes()
}

func (f *follower) errors() <-chan error {
	if f.w == nil {
		return nil
	}
	return f.w.Errors()
}

func (f *follower) close() {
	if f.w != nil {
		_ = f.w.Close() // nothing is left to be done about it
		f.w = nil
	}
}

// systemWatcher is the operating system's.
type systemWatcher struct {
	w       *fsnotify.Watcher
	changes chan string
	done    chan struct{}
}

func newSystemWatcher() (Watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	s := &systemWatcher{w: w, changes: make(chan string), done: make(chan struct{})}
	go s.pump()
	return s, nil
}

// pump passes names on until Close.
func (s *systemWatcher) pump() {
	defer close(s.changes)
	for event := range s.w.Events {
		select {
		case s.changes <- event.Name:
		case <-s.done:
			return
		}
	}
}

func (s *systemWatcher) Add(directory string) error    { return s.w.Add(directory) }
func (s *systemWatcher) Remove(directory string) error { return s.w.Remove(directory) }
func (s *systemWatcher) Changes() <-chan string        { return s.changes }
func (s *systemWatcher) Errors() <-chan error          { return s.w.Errors }

// Close stops the watcher and waits for its goroutine.
func (s *systemWatcher) Close() error {
	close(s.done)
	err := s.w.Close()
	for range s.changes {
	}
	return err
}
