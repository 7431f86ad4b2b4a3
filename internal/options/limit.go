package options

import (
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// Lines of one message that may come at once, and how many more each second. A
// fault that every tunnel meets must not fill a disk, and the line that says how
// many were left out keeps the log honest.
const (
	logBurst     = 100
	logPerSecond = 20
)

// Limited returns a logger that leaves out lines of a message that repeats
// faster than the limit; the next line of that message carries their number
// under the key "suppressed". Errors and information are limited apart. now is
// time.Now.
func Limited(log logr.Logger, now func() time.Time) logr.Logger {
	sink := log.GetSink()
	if sink == nil {
		return log
	}
	if deep, ok := sink.(logr.CallDepthLogSink); ok {
		sink = deep.WithCallDepth(1) // the frame of the methods below
	}
	return log.WithSink(&limitedSink{sink: sink, limits: &limits{now: now, of: map[limitKey]*limit{}}})
}

// limitKey tells messages apart. Messages are constants of the program, so their
// number is bounded.
type limitKey struct {
	message string
	isError bool
}

// limit is a bucket of lines.
type limit struct {
	left       float64
	at         time.Time
	suppressed int
}

// limits holds the buckets of a logger and of all that were made from it.
type limits struct {
	now func() time.Time

	// Guarded by mu.
	mu sync.Mutex
	of map[limitKey]*limit
}

// pass reports whether a line may be written, and how many before it were not.
func (l *limits) pass(key limitKey) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	b := l.of[key]
	if b == nil {
		b = &limit{left: logBurst, at: now}
		l.of[key] = b
	}
	b.left = min(logBurst, b.left+now.Sub(b.at).Seconds()*logPerSecond)
	b.at = now
	if b.left < 1 {
		b.suppressed++
		return 0, false
	}
	b.left--
	suppressed, b.suppressed = b.suppressed, 0
	return suppressed, true
}

// limitedSink passes on what its limits let through.
type limitedSink struct {
	sink   logr.LogSink
	limits *limits
}

var _ logr.CallDepthLogSink = (*limitedSink)(nil)

// Init implements logr.LogSink; the sink below was initialised by its own logger.
func (s *limitedSink) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink.
func (s *limitedSink) Enabled(level int) bool { return s.sink.Enabled(level) }

// Info implements logr.LogSink.
func (s *limitedSink) Info(level int, message string, pairs ...any) {
	if suppressed, ok := s.limits.pass(limitKey{message, false}); ok {
		s.sink.Info(level, message, withCount(pairs, suppressed)...)
	}
}

// Error implements logr.LogSink.
func (s *limitedSink) Error(err error, message string, pairs ...any) {
	if suppressed, ok := s.limits.pass(limitKey{message, true}); ok {
		s.sink.Error(err, message, withCount(pairs, suppressed)...)
	}
}

func withCount(pairs []any, suppressed int) []any {
	if suppressed == 0 {
		return pairs
	}
	return append(pairs[:len(pairs):len(pairs)], "suppressed", suppressed)
}

// WithValues implements logr.LogSink.
func (s *limitedSink) WithValues(pairs ...any) logr.LogSink {
	return &limitedSink{s.sink.WithValues(pairs...), s.limits}
}

// WithName implements logr.LogSink.
func (s *limitedSink) WithName(name string) logr.LogSink {
	return &limitedSink{s.sink.WithName(name), s.limits}
}

// WithCallDepth implements logr.CallDepthLogSink.
func (s *limitedSink) WithCallDepth(depth int) logr.LogSink {
	if deep, ok := s.sink.(logr.CallDepthLogSink); ok {
		return &limitedSink{deep.WithCallDepth(depth), s.limits}
	}
	return s
}
