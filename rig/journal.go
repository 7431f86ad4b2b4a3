package rig

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// entry is something that somebody noticed.
type entry struct{ who, what string }

func (e entry) String() string { return e.who + ": " + e.what }

// journal collects what happens between two looks at it. Within that time only
// the order of what one party says means anything. Safe for concurrent use.
type journal struct {
	mu sync.Mutex
	// Guarded by mu.
	entries []entry
	faults  []string
}

func (j *journal) add(who, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, entry{who, fmt.Sprintf(format, args...)})
}

// fault notes what must never happen, whatever the scenario expects.
func (j *journal) fault(who, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	j.add(who, "FAULT: %s", what)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.faults = append(j.faults, who+": "+what)
}

// take returns what has happened since the last time, by name.
func (j *journal) take() []entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := j.entries
	j.entries = nil
	slices.SortStableFunc(all, func(a, b entry) int { return strings.Compare(a.who, b.who) })
	return all
}

func (j *journal) allFaults() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.faults)
}
