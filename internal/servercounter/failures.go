package servercounter

import (
	"sync"

	"github.com/go-logr/logr"
)

// Reporter counts the failures of counters, for metrics. Its methods must not block.
type Reporter interface {
	// CountingFailed is called for every failure; source names the counter's kind.
	CountingFailed(source string, err error)
}

// failures remembers whether counting works, and logs once for each change.
type failures struct {
	// Fixed after construction.
	source   string
	logger   logr.Logger
	reporter Reporter // may be nil

	// Guarded by mu.
	mu   sync.Mutex
	last error
}

// note takes the outcome of one attempt.
func (f *failures) note(err error) {
	if err != nil && f.reporter != nil {
		f.reporter.CountingFailed(f.source, err)
	}
	f.mu.Lock()
	before := f.last
	f.last = err
	f.mu.Unlock()
	switch {
	case err != nil && (before == nil || before.Error() != err.Error()):
		f.logger.Error(err, "Cannot count servers; the last good number holds", "source", f.source)
	case err == nil && before != nil:
		f.logger.Info("Counting servers works again", "source", f.source)
	}
}

// err is the outcome of the last attempt.
func (f *failures) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}
