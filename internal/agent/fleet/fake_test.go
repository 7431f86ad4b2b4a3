package fleet

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/internal/agent/serverlink"
	"github.com/culvert-proxy/culvert/internal/servercounter"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// world is a fleet with servers that are played by the test, in fake time.
type world struct {
	t     *testing.T
	fleet *Fleet
	rooms *fakeRooms
	seen  *seenNumbers

	mu       sync.Mutex
	targets  []serverlink.Target
	answer   func(t serverlink.Target) (*fakeLink, error) // to an attempt
	attempts []time.Time
	links    []*fakeLink
}

func inWorld(t *testing.T, cfg Config, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, rooms: newFakeRooms(), seen: &seenNumbers{}, targets: []serverlink.Target{{Host: "lb", Address: "lb:1"}}}
		w.answer = func(serverlink.Target) (*fakeLink, error) { return nil, errRefused }
		received := servercounter.NewReceived(servercounter.ReceivedConfig{Changed: func() { w.fleet.Wake() }})
		w.fleet = New(cfg, Deps{
			Connector: w, Directory: w, Counter: servercounter.AtLeast(1, received), Received: received,
			Rooms: w.rooms, Observer: w.seen, Chance: func() float64 { return 0 },
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.fleet.Run(ctx)
		}()
		test(t, w)
		cancel()
		<-done
		received.Close()
		for _, l := range w.links {
			if !l.over() {
				t.Errorf("a link to %s is left", l.id)
			}
		}
		if n := w.seen.get("connected"); n != 0 {
			t.Errorf("%d links in the metrics", n)
		}
	})
}

var errRefused = errors.New("connection refused")

func (w *world) Targets(context.Context) []serverlink.Target {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.targets)
}

func (w *world) Connect(_ context.Context, t serverlink.Target) (Link, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attempts = append(w.attempts, time.Now())
	l, err := w.answer(t)
	if err != nil {
		return nil, err
	}
	l.target = t
	w.links = append(w.links, l)
	return l, nil
}

// serve makes attempts meet these servers in turns.
func (w *world) serve(count int, ext wire.Extensions, ids ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := -1
	w.answer = func(serverlink.Target) (*fakeLink, error) {
		if len(ids) == 0 {
			return nil, errRefused
		}
		i++
		return newFakeLink(ids[i%len(ids)], count, ext), nil
	}
}

// tried is the number of attempts since it was called last.
func (w *world) tried() int {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.attempts)
	w.attempts = nil
	return n
}

// link is the link to a server that is kept, nil if there is none.
func (w *world) link(id string) *fakeLink {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.links {
		if l.id == id && l.running() {
			return l
		}
	}
	return nil
}

// ids are the servers with a link, in the status.
func (w *world) ids() []string {
	synctest.Wait()
	var ids []string
	for _, l := range w.fleet.Status().Links {
		ids = append(ids, l.ServerID)
	}
	return ids
}

func (w *world) want(ids ...string) {
	w.t.Helper()
	if got := w.ids(); !slices.Equal(got, ids) {
		w.t.Fatalf("links to %v, want %v", got, ids)
	}
}

func pass(d time.Duration) { <-time.After(d) }

// fakeLink is a Link without a network.
type fakeLink struct {
	id     string
	count  int
	ext    wire.Extensions
	target serverlink.Target
	since  time.Time
	end    chan error

	mu      sync.Mutex
	events  serverlink.Events // set while it runs
	ended   bool
	dropped bool
	drained int
	closed  bool
	last    time.Time
}

func newFakeLink(id string, count int, ext wire.Extensions) *fakeLink {
	return &fakeLink{id: id, count: count, ext: ext, since: time.Now(), last: time.Now(), end: make(chan error, 10)}
}

func (l *fakeLink) Run(ev serverlink.Events) error {
	l.mu.Lock()
	l.events = ev
	l.mu.Unlock()
	err := <-l.end
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events, l.ended = nil, true
	return err
}

func (l *fakeLink) Drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropped = true
}

func (l *fakeLink) Drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drained++
}

func (l *fakeLink) Close(context.Context) {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.end <- errors.New("closed")
}

func (l *fakeLink) running() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.events != nil
}

func (l *fakeLink) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended || l.dropped
}

func (l *fakeLink) says() serverlink.Events {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.events
}

func (l *fakeLink) LastReceived() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last.IsZero() {
		return l.since
	}
	return time.Now() // it pings
}

// silence makes the link receive nothing any more.
func (l *fakeLink) silence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = time.Time{}
}

func (l *fakeLink) ServerID() string            { return l.id }
func (l *fakeLink) ServerCount() int            { return l.count }
func (l *fakeLink) Extensions() wire.Extensions { return l.ext }
func (l *fakeLink) Target() serverlink.Target   { return l.target }
func (l *fakeLink) Since() time.Time            { return l.since }
func (l *fakeLink) MinRTT() time.Duration       { return time.Millisecond }

// fakeRooms has an open tunnel or not.
type fakeRooms struct {
	mu      sync.Mutex
	refused time.Time
	idle    chan struct{}
}

func newFakeRooms() *fakeRooms {
	r := &fakeRooms{idle: make(chan struct{})}
	close(r.idle)
	return r
}

// open opens a tunnel and returns what closes it.
func (r *fakeRooms) open() func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	idle := make(chan struct{})
	r.idle = idle
	return func() { close(idle) }
}

func (r *fakeRooms) Refuse() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused = time.Now()
}

func (r *fakeRooms) refusedAt() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused
}

func (r *fakeRooms) WaitIdle(ctx context.Context) error {
	r.mu.Lock()
	idle := r.idle
	r.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// seenNumbers is an Observer.
type seenNumbers struct {
	mu      sync.Mutex
	numbers map[string]int
}

func (s *seenNumbers) set(name string, n int, add bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.numbers == nil {
		s.numbers = map[string]int{}
	}
	if add {
		n += s.numbers[name]
	}
	s.numbers[name] = n
}

func (s *seenNumbers) get(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.numbers[name]
}

func (s *seenNumbers) Connected(n int)   { s.set("connected", n, false) }
func (s *seenNumbers) Known(n int)       { s.set("known", n, false) }
func (s *seenNumbers) AttemptConnected() { s.set("kept", 1, true) }
func (s *seenNumbers) AttemptDuplicate() { s.set("duplicate", 1, true) }
func (s *seenNumbers) AttemptFailed()    { s.set("failed", 1, true) }
