package lease

import (
	"errors"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// Observer is told of every request that matters, for metrics. Its methods must
// not block. code is the HTTP status, 0 if no answer came; reason is the API's
// word for a failure, "" for none and for a failure without one. NopObserver can
// be embedded.
type Observer interface {
	// Listed is called after each LIST.
	Listed(code int, reason string, took time.Duration)
	// Watched is called after each attempt to open a WATCH.
	Watched(code int, reason string)
	// Deleted is called after each DELETE of an expired lease.
	Deleted(code int, reason string, took time.Duration)
	// Published is called after each attempt to write the server's own lease.
	Published(err error)
	// CountingFailed is called when the number of servers could not be brought
	// up to date; source is "lease".
	CountingFailed(source string, err error)
}

// NopObserver does nothing.
type NopObserver struct{}

// Listed does nothing.
func (NopObserver) Listed(int, string, time.Duration) {}

// Watched does nothing.
func (NopObserver) Watched(int, string) {}

// Deleted does nothing.
func (NopObserver) Deleted(int, string, time.Duration) {}

// Published does nothing.
func (NopObserver) Published(error) {}

// CountingFailed does nothing.
func (NopObserver) CountingFailed(string, error) {}

func orNop(o Observer) Observer {
	if o == nil {
		return NopObserver{}
	}
	return o
}

// outcome is the metric labels of a request's result.
func outcome(err error) (code int, reason string) {
	if err == nil {
		return http.StatusOK, ""
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return int(status.Status().Code), string(status.Status().Reason)
	}
	return 0, ""
}

// trouble remembers whether something works, and logs once for each change.
type trouble struct {
	// Fixed after construction.
	logger klog.Logger
	fails  string // the line for a failure
	works  string // the line for the first success after one

	// Guarded by mu.
	mu   sync.Mutex
	last error
}

// note takes the outcome of one attempt.
func (t *trouble) note(err error) {
	t.mu.Lock()
	before := t.last
	t.last = err
	t.mu.Unlock()
	switch {
	case err != nil && (before == nil || before.Error() != err.Error()):
		t.logger.Error(err, t.fails)
	case err == nil && before != nil:
		t.logger.Info(t.works)
	}
}

// err is the outcome of the last attempt.
func (t *trouble) err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}
