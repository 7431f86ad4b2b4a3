package flow

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

type counter struct{ n atomic.Int64 }

func (c *counter) add(n int64) { c.n.Add(n) }
func (c *counter) get() int64  { return c.n.Load() }

// TestQueueModel does random things to a queue and to a plain string.
func TestQueueModel(t *testing.T) {
	for seed := range uint64(500) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		limit := int64(rnd.IntN(40))
		q := New[chunk](limit)
		var model string
		total := int64(0)
		for step := range 100 {
			switch rnd.IntN(5) {
			case 0, 1, 2:
				c := chunk(fmt.Sprintf("%0*d", rnd.IntN(12), step))
				fits := len(model) == 0 || int64(len(model)+len(c)) <= limit
				if err := q.Push(c); (err == nil) != fits {
					t.Fatalf("seed %d step %d: %v, fits %v", seed, step, err, fits)
				} else if fits {
					model += string(c)
				}
			case 3:
				c, ok := q.TryPop()
				if ok != (model != "") || model[:len(c)] != string(c) {
					t.Fatalf("seed %d step %d: popped %q of %q", seed, step, c, model)
				}
				model = model[len(c):]
				total += int64(len(c))
			default:
				limit = int64(rnd.IntN(40))
				q.SetLimit(limit)
			}
			if q.Len() != int64(len(model)) || q.Popped() != total {
				t.Fatalf("seed %d step %d: len %d, popped %d; want %d, %d", seed, step, q.Len(), q.Popped(), len(model), total)
			}
		}
	}
}

// TestQueueConcurrently: many producers that push, wait and give up, and one
// consumer. Each producer's items arrive in its order, every item is either
// popped, refused or freed, and nobody is left behind. With abort, the end comes
// in the middle.
func TestQueueConcurrently(t *testing.T) {
	for _, abort := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var live counter
			q := New[brick](500)
			var producers sync.WaitGroup
			for p := range 8 {
				producers.Go(func() { produce(q, p, &live) })
			}
			stop := errors.New("stop")
			if abort {
				time.AfterFunc(50*time.Millisecond, func() { q.Abort(stop) })
			}
			go func() { producers.Wait(); q.CloseWhenEmpty(stop) }()
			last := map[int]int{}
			bytes := int64(0)
			for n := 0; ; n++ {
				b, err := q.Pop()
				if err != nil {
					if !errors.Is(err, stop) {
						t.Errorf("ended with %v", err)
					}
					break
				}
				if b.number <= last[b.producer] {
					t.Errorf("producer %d: %d after %d", b.producer, b.number, last[b.producer])
				}
				last[b.producer] = b.number
				bytes += int64(b.size)
				b.Free()
				if n%10 == 0 { // be slow now and then, so that it fills
					<-time.After(time.Millisecond)
				}
			}
			producers.Wait()
			if live.get() != 0 {
				t.Errorf("abort %v: %d items were lost", abort, live.get())
			}
			if q.Popped() != bytes {
				t.Errorf("popped %d bytes, the queue says %d", bytes, q.Popped())
			}
			if !abort && len(last) != 8 {
				t.Errorf("heard of %d producers", len(last))
			}
		})
	}
}

func produce(q *Queue[brick], producer int, live *counter) {
	rnd := rand.New(rand.NewPCG(uint64(producer), 1))
	for n := 1; n <= 500; n++ {
		b := brick{size: 1 + rnd.IntN(100), producer: producer, number: n, live: live}
		live.add(1)
		var err error
		if n%3 == 0 {
			err = q.Push(b)
		} else {
			_, err = q.PushWait(b, time.Duration(rnd.IntN(5))*time.Millisecond)
		}
		if err != nil {
			b.Free()
		}
	}
}

// TestIdleQueueIsSmall: a queue that was full once keeps no memory for it.
func TestIdleQueueIsSmall(t *testing.T) {
	var live counter
	q := New[brick](1 << 20)
	for range 1000 {
		if err := q.Push(brick{size: 100, live: &live}); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 {
		if _, err := q.Pop(); err != nil {
			t.Fatal(err)
		}
	}
	if len(q.items.buf) > idleRing {
		t.Errorf("%d slots kept", len(q.items.buf))
	}
}
