package servercounter

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// elapse lets fake time pass.
func elapse(d time.Duration) { <-time.After(d) }

func TestComposition(t *testing.T) {
	for _, c := range []struct {
		name    string
		counter ServerCounter
		want    int
	}{
		{"static", Static(3), 3},
		{"max", Max(Static(1), Static(4), Static(2)), 4},
		{"max of negatives", Max(Static(-3), Static(-2)), -2},
		{"max of nothing", Max(), 0},
		{"unknown is one", AtLeast(1, Static(0)), 1},
		{"negative is one", AtLeast(1, Static(-7)), 1},
		{"known stays", AtLeast(1, Static(5)), 5},
	} {
		if got := c.counter.CountServers(); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestSource(t *testing.T) {
	yes, no := true, false
	own, received := Static(2), Static(5)
	for _, c := range []struct {
		own     ServerCounter
		source  string
		respect *bool
		want    int // 0: an error
	}{
		{nil, "", nil, 5},
		{nil, "default", nil, 5},
		{nil, "max", nil, 5},
		{nil, "", &yes, 5},
		{nil, "", &no, 1},
		{nil, "max", &no, 0},
		{own, "", nil, 2},
		{own, "default", nil, 2},
		{own, "default", &no, 2},
		{own, "default", &yes, 5},
		{own, "max", nil, 5},
		{own, "max", &yes, 5},
		{own, "max", &no, 0},
		{Static(0), "", nil, 1},
		{Static(9), "max", nil, 9},
		{own, "Max", nil, 0},
	} {
		counter, err := NewSource(SourceConfig{Own: c.own, Received: received, Source: c.source, Respect: c.respect})
		if (err != nil) != (c.want == 0) {
			t.Errorf("%+v: error %v", c, err)
		}
		if err == nil && counter.CountServers() != c.want {
			t.Errorf("%+v: counts %d", c, counter.CountServers())
		}
	}
}

// slow is a counter that takes a second, and knows how often it was asked.
type slow struct {
	value, asked, running, most atomic.Int64
}

func (s *slow) CountServers() int {
	s.asked.Add(1)
	s.most.Store(max(s.most.Load(), s.running.Add(1)))
	defer s.running.Add(-1)
	value := s.value.Load()
	<-time.After(time.Second)
	return int(value)
}

func TestCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes atomic.Int64
		of := &slow{}
		of.value.Store(3)
		c := NewCached(of, CachedConfig{Expiry: 10 * time.Second, Changed: func() { changes.Add(1) }})
		defer c.Close()
		start := time.Now()
		var wg sync.WaitGroup
		for range 5 { // the first callers wait, and one of them asks
			wg.Go(func() {
				if got := c.CountServers(); got != 3 {
					t.Errorf("first value %d", got)
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took != time.Second || of.asked.Load() != 1 {
			t.Errorf("the first value took %v and %d questions", took, of.asked.Load())
		}
		of.value.Store(4)
		elapse(9 * time.Second)
		if got := c.CountServers(); got != 3 || of.asked.Load() != 1 {
			t.Errorf("before the expiry: %d after %d questions", got, of.asked.Load())
		}
		elapse(time.Second)
		for range 5 {
			before := time.Now()
			if got := c.CountServers(); got != 3 || time.Since(before) != 0 {
				t.Errorf("during the refresh: %d after %v", got, time.Since(before))
			}
		}
		synctest.Wait()
		if of.asked.Load() != 2 || changes.Load() != 0 {
			t.Errorf("%d questions, %d changes", of.asked.Load(), changes.Load())
		}
		elapse(time.Second)
		synctest.Wait()
		if got := c.CountServers(); got != 4 || changes.Load() != 1 || of.most.Load() != 1 {
			t.Errorf("after the refresh: %d, %d changes, %d at once", got, changes.Load(), of.most.Load())
		}
	})
}

func TestCachedClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := &slow{}
		c := NewCached(of, CachedConfig{})
		c.CountServers()
		c.CountServers() // starts a refresh
		before := time.Now()
		c.Close()
		if time.Since(before) != time.Second {
			t.Error("Close did not wait for the refresh")
		}
		c.CountServers()
		synctest.Wait()
		if of.asked.Load() != 2 {
			t.Error("a refresh began after Close")
		}
	})
}

func TestReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes atomic.Int64
		r := NewReceived(ReceivedConfig{Changed: func() { changes.Add(1) }})
		defer r.Close()
		expect := func(what string, count int, changed int64) {
			t.Helper()
			synctest.Wait()
			if got := r.CountServers(); got != count {
				t.Errorf("%s: count %d, want %d", what, got, count)
			}
			if got := changes.Swap(0); got != changed {
				t.Errorf("%s: %d changes, want %d", what, got, changed)
			}
		}
		expect("nobody has answered", 1, 0)
		if before, after := r.Answered("a", 3); before != 1 || after != 3 {
			t.Errorf("from %d to %d", before, after)
		}
		r.LinkUp("a")
		expect("a says 3", 3, 1)
		r.Answered("b", 2) // rolling: b does not know of the third yet
		r.LinkUp("b")
		expect("b says 2", 3, 0)
		r.Answered("b", 4)
		expect("b says 4", 4, 1)
		r.Answered("b", 0)
		expect("b does not know any more", 3, 1)
		r.Answered("b", 5)
		expect("b says 5", 5, 1)
		elapse(24 * time.Hour)
		expect("links live", 5, 0)

		r.LinkDown("b")
		elapse(59 * time.Second)
		expect("b is gone for 59 s", 5, 0)
		elapse(time.Second)
		expect("b is forgotten", 3, 1)

		r.LinkDown("a")
		elapse(59 * time.Second)
		r.LinkUp("a") // back in time, and has not said anything new
		elapse(time.Hour)
		expect("a came back", 3, 0)
		r.LinkUp("a")
		r.LinkDown("a")
		elapse(time.Hour)
		expect("a has a link left", 3, 0)
		r.LinkDown("a")
		elapse(time.Minute)
		expect("all are forgotten", 1, 1)

		r.Answered("c", 7) // a duplicate that never became a link
		expect("c says 7", 7, 1)
		if got, want := r.Answers(), []Answer{{"c", 7, 0}}; !slices.Equal(got, want) {
			t.Errorf("answers %v, want %v", got, want)
		}
		r.Close()
		elapse(time.Hour)
		expect("closed", 1, 0)
	})
}

func TestReceivedConcurrently(t *testing.T) {
	r := NewReceived(ReceivedConfig{Changed: func() {}})
	defer r.Close()
	var wg sync.WaitGroup
	for i := range 4 {
		id := strings.Repeat("x", i%2)
		wg.Go(func() {
			for n := range 500 {
				r.LinkUp(id)
				r.Answered(id, n%5)
				r.CountServers()
				r.LinkDown(id)
			}
		})
	}
	wg.Wait()
	for _, a := range r.Answers() {
		if a.Links != 0 {
			t.Errorf("%d links are left", a.Links)
		}
	}
}
