package behaviour

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/culvert-proxy/culvert/rig/process"
)

func TestMain(m *testing.M) { os.Exit(process.Main(m)) }

// hang bounds waits whose length nobody promised.
const hang = process.HangLimit

// grace is what a busy machine may add to a promised time.
const grace = 2 * time.Second

// soak reports whether sizes are those of `make soak`.
func soak() bool { return os.Getenv("CULVERT_SOAK") != "" }

// scaled is full in a soak, else small.
func scaled[T any](small, full T) T {
	if soak() {
		return full
	}
	return small
}

// settle waits until state returns "", which it calls every now and then, and
// fails the test with what it said last.
func settle(t testing.TB, limit time.Duration, state func() string) {
	t.Helper()
	if last := settled(limit, state); last != "" {
		t.Fatalf("not within %v: %s", limit, last)
	}
}

func settled(limit time.Duration, state func() string) string {
	end := time.After(limit)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		last := state()
		if last == "" {
			return ""
		}
		select {
		case <-end:
			return state()
		case <-tick.C:
		}
	}
}

// many calls f for 0 to n-1, width calls at a time, and fails the test if any
// of them failed, showing a few.
func many(t testing.TB, n, width int, f func(i int) error) {
	t.Helper()
	var (
		workers sync.WaitGroup
		next    atomic.Int64
		mu      sync.Mutex
		failed  []error
	)
	for range width {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := f(i); err != nil {
					mu.Lock()
					failed = append(failed, fmt.Errorf("number %d: %w", i, err))
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
	if len(failed) > 0 {
		t.Fatalf("%d of %d failed:\n%v", len(failed), n, errors.Join(failed[:min(5, len(failed))]...))
	}
}

// runs are subtests that run side by side, however few tests may run in parallel.
type runs []struct {
	name string
	f    func(t *testing.T)
}

func (r *runs) add(name string, f func(t *testing.T)) {
	*r = append(*r, struct {
		name string
		f    func(t *testing.T)
	}{name, f})
}

// together returns when all of them are done.
func (r *runs) together(t *testing.T) {
	var running sync.WaitGroup
	defer running.Wait()
	for _, run := range *r {
		running.Go(func() { t.Run(run.name, run.f) })
	}
}

// after waits for d, for what is about time itself.
func after(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// list makes one text of what is not as it should be.
type list []string

func (l *list) add(format string, args ...any) { *l = append(*l, fmt.Sprintf(format, args...)) }

func (l list) String() string { return strings.Join(l, "; ") }
