package flow

import (
	"errors"
	"io"
	"sync"
	"time"
)

// ErrFull says that an item does not fit into a queue now.
var ErrFull = errors.New("queue full")

// Item is what a Queue holds: something with bytes in it, owned by one at a time.
type Item[T any] interface {
	// Len is the number of bytes.
	Len() int
	// Free gives the item's memory back.
	Free()
	// Merge puts next behind the item if both are small and reports whether it
	// did; then the result stands for both. It must succeed whenever both
	// together are small enough that the cost of an item matters, or the queue
	// refuses items long before its bytes are used up: see Queue.
	Merge(next T) (T, bool)
}

// Queue is a first-in first-out queue bounded by bytes, for any number of
// producers and one consumer. All methods are safe for concurrent use.
//
// Memory. The limit is on the items' bytes. What an item costs beside its bytes
// is bounded by merging: an item is merged into the last one that waits, if they
// allow it. With wire.Payload any two neighbours together have more than 4 KiB,
// so a peer that sends single bytes fills its share with bytes and not with
// bookkeeping, and one that keeps to its credit is never refused. As a second
// line, for items that do not merge, a queue holds at most limit/256 + 16 items.
type Queue[T Item[T]] struct {
	// Guarded by mu.
	mu      sync.Mutex
	ready   sync.Cond // the consumer waits here
	room    sync.Cond // producers wait here
	state   queueState
	err     error // why it was closed
	limit   int64
	bytes   int64
	popped  int64
	items   ring[T]
	waiting int // producers in PushWait
}

// New returns an empty queue of limit bytes.
func New[T Item[T]](limit int64) *Queue[T] {
	q := &Queue[T]{limit: limit}
	q.ready.L, q.room.L = &q.mu, &q.mu
	return q
}

// minCharge is what an item counts at least, in bytes, against the bound on the
// number of items.
const minCharge = 256

// fits reports whether n more bytes may be queued. Whatever the limit, one item
// always fits into an empty queue, or a large one could never pass. mu is held.
func (q *Queue[T]) fits(n int64) bool {
	if q.items.count == 0 {
		return true
	}
	return q.bytes+n <= q.limit && int64(q.items.count) < q.limit/minCharge+16
}

// Push queues x and takes ownership of it. It never blocks. If the queue is not
// empty and x does not fit, the error is ErrFull; once the queue is closed it is
// what it was closed with. On any error x stays the caller's. An item without
// bytes is freed at once.
func (q *Queue[T]) Push(x T) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state != queueOpen {
		return q.err
	}
	if !q.fits(int64(x.Len())) {
		return ErrFull
	}
	q.push(x)
	return nil
}

// PushWait is Push, except that it waits for room, for up to wait. It reports
// how long it waited, whatever the outcome; ErrFull means the whole of it.
// Producers that wait are not served in any order.
func (q *Queue[T]) PushWait(x T, wait time.Duration) (waited time.Duration, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state == queueOpen && q.fits(int64(x.Len())) {
		q.push(x)
		return 0, nil
	}
	if wait <= 0 || q.state != queueOpen {
		return 0, q.refusal()
	}
	start := time.Now()
	timer := time.AfterFunc(wait, q.wakeProducers)
	defer timer.Stop()
	q.waiting++
	defer func() { q.waiting-- }()
	for {
		q.room.Wait()
		waited = time.Since(start)
		switch {
		case q.state != queueOpen:
			return waited, q.err
		case q.fits(int64(x.Len())):
			q.push(x)
			return waited, nil
		case waited >= wait:
			return waited, ErrFull
		}
	}
}

// refusal is the error of a push that may not wait. mu is held.
func (q *Queue[T]) refusal() error {
	if q.state != queueOpen {
		return q.err
	}
	return ErrFull
}

// wakeProducers makes all waiting producers look at the clock. The lock is what
// makes sure that each of them is either waiting already or has yet to look.
func (q *Queue[T]) wakeProducers() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.room.Broadcast()
}

// push queues x, which fits. mu is held.
func (q *Queue[T]) push(x T) {
	n := int64(x.Len())
	if n == 0 {
		x.Free()
		return
	}
	q.bytes += n
	if tail := q.items.last(); tail != nil {
		if merged, ok := (*tail).Merge(x); ok {
			*tail = merged
			return
		}
	}
	q.items.push(x)
	q.ready.Signal()
}

// Pop takes the first item, which becomes the caller's, and blocks while there
// is none. Once the queue is closed and what was left is popped, the error is
// what it was closed with. Only one goroutine may pop.
func (q *Queue[T]) Pop() (T, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.items.count == 0 {
		if q.state != queueOpen {
			var none T
			return none, q.err
		}
		q.ready.Wait()
	}
	return q.pop(), nil
}

// TryPop is Pop, except that it does not block: it reports whether there was an
// item. For gathering several into one write.
func (q *Queue[T]) TryPop() (T, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.items.count == 0 {
		var none T
		return none, false
	}
	return q.pop(), true
}

// pop takes the first item. There is one. mu is held.
func (q *Queue[T]) pop() T {
	x := q.items.pop()
	n := int64(x.Len())
	q.bytes -= n
	q.popped += n
	if q.waiting > 0 {
		q.room.Broadcast()
	}
	return x
}

// CloseWhenEmpty takes no more items; what is queued is popped first, then Pop
// returns err, io.EOF if err is nil. Producers get err at once. It does nothing
// to a queue that is closed already.
func (q *Queue[T]) CloseWhenEmpty(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.end(queueClose, err)
}

// Abort frees what is queued and makes every call return err, io.EOF if err is
// nil. It overrules CloseWhenEmpty; the first Abort stays.
func (q *Queue[T]) Abort(err error) {
	q.mu.Lock()
	rest := ring[T]{}
	if q.end(queueAbort, err) {
		rest, q.items, q.bytes = q.items, ring[T]{}, 0
	}
	q.mu.Unlock()
	for rest.count > 0 {
		rest.pop().Free()
	}
}

// end changes the state and reports whether it did. mu is held.
func (q *Queue[T]) end(event queueEvent, err error) bool {
	next := q.state.next(event)
	if next == q.state {
		return false
	}
	if err == nil {
		err = io.EOF
	}
	q.state, q.err = next, err
	q.ready.Broadcast()
	q.room.Broadcast()
	return true
}

// SetLimit changes the limit, in bytes. What is queued beyond it stays.
func (q *Queue[T]) SetLimit(limit int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.limit = limit
	q.room.Broadcast()
}

// Len is the number of bytes that wait.
func (q *Queue[T]) Len() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes
}

// Popped is the number of bytes ever popped. It tells a consumer that is stuck
// from one that is slow.
func (q *Queue[T]) Popped() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.popped
}

// Err is what the queue was closed with, nil while it is open.
func (q *Queue[T]) Err() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}
