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

func TestQueueOrderAndMerge(t *testing.T) {
	q := New[chunk](100)
	for _, s := range []chunk{"a", "b", "", "cdefgh", "ijk"} {
		if err := q.Push(s); err != nil {
			t.Fatal(err)
		}
	}
	q.CloseWhenEmpty(nil)
	for _, want := range []chunk{"abcdefgh", "ijk"} {
		got, err := q.Pop()
		if err != nil || got != want {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
	}
	if _, err := q.Pop(); err != io.EOF {
		t.Fatalf("got %v, want EOF", err)
	}
	if q.Popped() != 11 || q.Len() != 0 {
		t.Fatalf("popped %d, len %d", q.Popped(), q.Len())
	}
}

func TestPushWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[chunk](10)
		if err := q.Push("0123456789abcdef"); err != nil {
			t.Fatalf("a large item into an empty queue: %v", err)
		}
		if err := q.Push("x"); !errors.Is(err, ErrFull) {
			t.Fatalf("got %v, want ErrFull", err)
		}
		if waited, err := q.PushWait("x", time.Second); waited != time.Second || !errors.Is(err, ErrFull) {
			t.Fatalf("waited %v, %v", waited, err)
		}
		go func() {
			time.Sleep(300 * time.Millisecond)
			_, _ = q.Pop()
		}()
		if waited, err := q.PushWait("x", time.Second); waited != 300*time.Millisecond || err != nil {
			t.Fatalf("waited %v, %v", waited, err)
		}
	})
}
