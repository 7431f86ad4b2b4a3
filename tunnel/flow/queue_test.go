package flow

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// chunk is an item that merges up to 8 bytes.
type chunk string

func (c chunk) Len() int { return len(c) }
func (c chunk) Free()    {}
func (c chunk) Merge(next chunk) (chunk, bool) {
	if len(c)+len(next) > 8 {
		return c, false
	}
	return c + next, true
}

// brick is an item that never merges, and counts in live those that exist.
type brick struct {
	size, producer, number int
	live                   *counter
}

func (b brick) Len() int                  { return b.size }
func (b brick) Free()                     { b.live.add(-1) }
func (b brick) Merge(brick) (brick, bool) { return b, false }

func pushed(t *testing.T, q *Queue[chunk], items ...chunk) {
	t.Helper()
	for _, c := range items {
		if err := q.Push(c); err != nil {
			t.Fatalf("push %q: %v", c, err)
		}
	}
}

func popped(t *testing.T, q *Queue[chunk], want ...chunk) {
	t.Helper()
	for _, w := range want {
		if got, err := q.Pop(); err != nil || got != w {
			t.Fatalf("popped %q, %v; want %q", got, err, w)
		}
	}
}

func TestQueueOrderAndMerge(t *testing.T) {
	q := New[chunk](100)
	pushed(t, q, "a", "b", "", "cdefgh", "ijk")
	if q.Len() != 11 || q.Popped() != 0 {
		t.Errorf("len %d, popped %d", q.Len(), q.Popped())
	}
	popped(t, q, "abcdefgh", "ijk")
	if q.Len() != 0 || q.Popped() != 11 {
		t.Errorf("len %d, popped %d", q.Len(), q.Popped())
	}
	if c, ok := q.TryPop(); ok {
		t.Errorf("popped %q from an empty queue", c)
	}
	pushed(t, q, "lm")
	if c, ok := q.TryPop(); !ok || c != "lm" {
		t.Errorf("popped %q, %v", c, ok)
	}
}

func TestQueueLimit(t *testing.T) {
	q := New[chunk](10)
	pushed(t, q, "0123456789abcdef") // larger than the limit, but alone
	if err := q.Push("x"); !errors.Is(err, ErrFull) {
		t.Fatalf("got %v", err)
	}
	popped(t, q, "0123456789abcdef")
	pushed(t, q, "01234567", "89")
	if err := q.Push("x"); err != ErrFull {
		t.Fatalf("got %v", err)
	}
	q.SetLimit(11)
	pushed(t, q, "x")
	popped(t, q, "01234567", "89x")
}

// TestQueueBoundsItems: items that do not merge are bounded in number, too.
func TestQueueBoundsItems(t *testing.T) {
	var live counter
	q := New[brick](1 << 20)
	n := 0
	for ; n < 10000; n++ {
		live.add(1)
		if err := q.Push(brick{size: 1, live: &live}); err != nil {
			live.add(-1)
			break
		}
	}
	if n != 1<<20/256+16 {
		t.Errorf("%d items of a byte fit into 1 MiB", n)
	}
	q.Abort(nil)
	if live.get() != 0 {
		t.Errorf("%d items were not freed", live.get())
	}
}

func TestQueueFreesEmptyItems(t *testing.T) {
	var live counter
	live.add(1)
	q := New[brick](10)
	if err := q.Push(brick{live: &live}); err != nil || live.get() != 0 {
		t.Errorf("%v, %d left", err, live.get())
	}
	q.CloseWhenEmpty(nil)
	if _, err := q.Pop(); err != io.EOF {
		t.Errorf("got %v", err)
	}
}

func TestQueueState(t *testing.T) {
	for _, c := range []struct {
		from  queueState
		event queueEvent
		to    queueState
	}{
		{queueOpen, queueClose, queueClosing},
		{queueOpen, queueAbort, queueAborted},
		{queueClosing, queueClose, queueClosing},
		{queueClosing, queueAbort, queueAborted},
		{queueAborted, queueClose, queueAborted},
		{queueAborted, queueAbort, queueAborted},
	} {
		if got := c.from.next(c.event); got != c.to {
			t.Errorf("%d after %d: %d, want %d", c.from, c.event, got, c.to)
		}
	}
}

func TestQueueClose(t *testing.T) {
	first, second := errors.New("first"), errors.New("second")
	q := New[chunk](20)
	pushed(t, q, "01234567", "89")
	q.CloseWhenEmpty(first)
	q.CloseWhenEmpty(second)
	if err := q.Push("x"); err != first {
		t.Errorf("push: %v", err)
	}
	if waited, err := q.PushWait("x", time.Hour); err != first || waited != 0 {
		t.Errorf("push: %v after %v", err, waited)
	}
	popped(t, q, "01234567", "89")
	if _, err := q.Pop(); err != first || q.Err() != first {
		t.Errorf("pop: %v, %v", err, q.Err())
	}
	q.Abort(second)
	if _, err := q.Pop(); err != second || q.Err() != second {
		t.Errorf("after abort: %v, %v", err, q.Err())
	}
	q.Abort(first)
	if _, err := q.Pop(); err != second {
		t.Errorf("after another abort: %v", err)
	}
}

func TestQueueAbortFreesWhatIsLeft(t *testing.T) {
	var live counter
	q := New[brick](100000)
	for range 20 { // the ring has grown and wrapped
		for range 3 {
			live.add(1)
			if err := q.Push(brick{size: 10, live: &live}); err != nil {
				t.Fatal(err)
			}
		}
		b, err := q.Pop()
		if err != nil {
			t.Fatal(err)
		}
		b.Free()
	}
	q.CloseWhenEmpty(nil)
	q.Abort(nil)
	if live.get() != 0 || q.Len() != 0 {
		t.Errorf("%d items and %d bytes left", live.get(), q.Len())
	}
	if _, err := q.Pop(); err != io.EOF {
		t.Errorf("got %v", err)
	}
}

// result is what a blocked call returned, and when.
type result struct {
	at  time.Duration
	err error
}

// blocked runs f beside the test and returns where its result will be.
func blocked(f func() error) chan result {
	c := make(chan result, 1)
	start := time.Now()
	go func() { err := f(); c <- result{time.Since(start), err} }()
	return c
}

func TestPopWaits(t *testing.T) {
	stop := errors.New("stop")
	for name, c := range map[string]struct {
		wake func(*Queue[chunk])
		want error
	}{
		"push":  {func(q *Queue[chunk]) { _ = q.Push("x") }, nil},
		"close": {func(q *Queue[chunk]) { q.CloseWhenEmpty(stop) }, stop},
		"abort": {func(q *Queue[chunk]) { q.Abort(stop) }, stop},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := New[chunk](10)
			got := blocked(func() error { _, err := q.Pop(); return err })
			time.AfterFunc(time.Hour, func() { c.wake(q) })
			if r := <-got; r.err != c.want || r.at != time.Hour {
				t.Errorf("%s: %v after %v", name, r.err, r.at)
			}
		})
	}
}

func TestPushWaits(t *testing.T) {
	stop := errors.New("stop")
	for name, c := range map[string]struct {
		wake func(*Queue[chunk])
		want error
		at   time.Duration
	}{
		"room":             {func(q *Queue[chunk]) { _, _ = q.Pop() }, nil, time.Second},
		"room with TryPop": {func(q *Queue[chunk]) { q.TryPop() }, nil, time.Second},
		"limit":            {func(q *Queue[chunk]) { q.SetLimit(100) }, nil, time.Second},
		"close":            {func(q *Queue[chunk]) { q.CloseWhenEmpty(stop) }, stop, time.Second},
		"abort":            {func(q *Queue[chunk]) { q.Abort(stop) }, stop, time.Second},
		"nothing":          {func(*Queue[chunk]) {}, ErrFull, 10 * time.Second},
		"too little":       {func(q *Queue[chunk]) { q.SetLimit(17) }, ErrFull, 10 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := New[chunk](16)
			pushed(t, q, "01234567", "89abcdef")
			var waited time.Duration
			got := blocked(func() (err error) {
				waited, err = q.PushWait("ghijklmn", 10*time.Second)
				return err
			})
			time.AfterFunc(time.Second, func() { c.wake(q) })
			if r := <-got; r.err != c.want || r.at != c.at || waited != c.at {
				t.Errorf("%s: %v after %v, said %v", name, r.err, r.at, waited)
			}
		})
	}
}

func TestPushWaitWithoutWaiting(t *testing.T) {
	q := New[chunk](8)
	if waited, err := q.PushWait("01234567", 0); waited != 0 || err != nil {
		t.Errorf("%v after %v", err, waited)
	}
	if waited, err := q.PushWait("x", 0); waited != 0 || err != ErrFull {
		t.Errorf("%v after %v", err, waited)
	}
}

// TestManyProducersWait: each gets in as room appears, none is forgotten.
func TestManyProducersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[chunk](8)
		pushed(t, q, "01234567")
		var got []chan result
		for range 10 {
			got = append(got, blocked(func() error { _, err := q.PushWait("abcdefgh", time.Minute); return err }))
		}
		for range 10 {
			synctest.Wait()
			if _, err := q.Pop(); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range got {
			if r := <-c; r.err != nil || r.at != 0 {
				t.Errorf("%v after %v", r.err, r.at)
			}
		}
		if q.Len() != 8 {
			t.Errorf("%d bytes left", q.Len())
		}
	})
}
