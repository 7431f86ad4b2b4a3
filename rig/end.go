package rig

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
)

// pending, up and gone are what became of an end's dial; anything else is the
// reason for which it failed.
const (
	pending = "pending"
	up      = "up"
)

// End is one end of a tunnel: a client, or a connection that an endpoint has
// accepted. It reads all the time, and checks what it reads; what it is told to
// write and to close it does one after the other. Safe for concurrent use.
type End struct {
	// Fixed after construction.
	name    string
	from    string // the agent whose connection it is; "" for a client
	journal *journal
	echo    bool  // writes back what it reads
	answer  int64 // bytes to write when the end of what comes in has come
	jobs    chan func(medium)
	out     *outgoing     // of the goroutine that works
	over    chan struct{} // closed when this end has closed
	cancel  func()        // ends a client's dial; nil for an endpoint's

	mu sync.Mutex
	// Guarded by mu.
	conn    medium
	dial    string // pending, up, or why it failed
	fate    string // "", "eof", or how what comes in broke
	closed  bool
	in      incoming
	limit   int64         // how much is read until it is moved
	resumed chan struct{} // closed when it is
}

const noLimit = math.MaxInt64

func newEnd(j *journal, name string) *End {
	return &End{
		name:    name,
		journal: j,
		jobs:    make(chan func(medium), 1000),
		out:     newOutgoing(name),
		over:    make(chan struct{}),
		dial:    pending,
		limit:   noLimit,
		resumed: make(chan struct{}),
	}
}

// start makes the end live on m.
func (e *End) start(m medium) {
	e.mu.Lock()
	e.conn, e.dial = m, up
	e.mu.Unlock()
	go e.read(m)
	go e.work(m)
}

// failed ends a client that never was.
func (e *End) failed(reason string) {
	e.mu.Lock()
	e.dial, e.closed = reason, true
	e.mu.Unlock()
	close(e.over)
	e.journal.add(e.name, "dial failed: %s", reason)
}

// work does what it is told, in order.
func (e *End) work(m medium) {
	for {
		select {
		case job := <-e.jobs:
			job(m)
		case <-e.over:
			return
		}
	}
}

func (e *End) do(job func(medium)) error {
	select {
	case e.jobs <- job:
		return nil
	default:
		return fmt.Errorf("%s has too much to do", e.name)
	}
}

// Write sends n more bytes of the end's stream, after what it was told before. A
// connection that breaks meanwhile is the reader's to report.
func (e *End) Write(n int64) error {
	return e.do(func(m medium) {
		buf := make([]byte, min(n, 64<<10))
		for rest := n; rest > 0; {
			b := buf[:min(rest, int64(len(buf)))]
			e.out.next(b)
			if _, err := m.Write(b); err != nil {
				return
			}
			rest -= int64(len(b))
		}
	})
}

// HalfClose ends what this end sends, after what it was told before.
func (e *End) HalfClose() error {
	return e.do(func(m medium) {
		if err := m.CloseWrite(); errors.Is(err, errors.ErrUnsupported) {
			e.journal.add(e.name, "half-close is not supported")
		}
	})
}

// Close closes in order, after what it was told before.
func (e *End) Close() error { return e.do(e.close) }

// CloseNow closes in order what has been written so far, also while a write or
// a dial waits.
func (e *End) CloseNow() { e.leave(e.close) }

// Abort closes without order, or cancels the dial.
func (e *End) Abort() {
	e.leave(func(m medium) {
		if e.end() {
			m.abort()
		}
	})
}

func (e *End) leave(how func(medium)) {
	e.mu.Lock()
	m, dialling := e.conn, e.dial == pending
	e.mu.Unlock()
	switch {
	case dialling && e.cancel != nil:
		e.cancel()
	case m != nil:
		go how(m)
	}
}

// end marks the end as closed, once.
func (e *End) end() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.closed = true
	close(e.over)
	return true
}

func (e *End) close(m medium) {
	if !e.end() {
		return
	}
	err := m.finish()
	switch {
	case err != nil:
		e.journal.add(e.name, "closed, the rest is lost: %s", reasonOf(err))
	case e.from == "":
		e.journal.add(e.name, "closed")
	}
}

// read takes what comes until the end of it.
func (e *End) read(m medium) {
	buf := make([]byte, 32<<10)
	for {
		n, resumed := e.room(len(buf))
		if n == 0 {
			select {
			case <-resumed:
			case <-e.over:
				return
			case <-m.lost():
				e.broken(m, "reset")
				return
			}
			continue
		}
		n, err := m.Read(buf[:n])
		e.take(buf[:n])
		if e.echo && n > 0 {
			_, _ = m.Write(buf[:n]) // what breaks is read next
		}
		switch {
		case errors.Is(err, io.EOF):
			e.ended()
			return
		case err != nil:
			if !errors.Is(err, net.ErrClosed) {
				e.broken(m, reasonOf(err))
			}
			return
		}
	}
}

func (e *End) take(b []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.in.take(b); err != nil {
		e.journal.fault(e.name, "%v", err)
	}
}

// ended is the orderly end of what comes in. An endpoint's connection then
// closes, after what it has to write.
func (e *End) ended() {
	e.mu.Lock()
	e.fate = "eof"
	got := e.in.String()
	e.mu.Unlock()
	e.journal.add(e.name, "eof, got %s", got)
	if e.from != "" {
		_ = e.Write(e.answer)
		_ = e.Close()
	}
}

// broken is the other end. How much had come is not said: it depends on how the
// goroutines ran.
func (e *End) broken(m medium, reason string) {
	e.mu.Lock()
	e.fate = reason
	e.mu.Unlock()
	e.journal.add(e.name, "broken: %s", reason)
	if e.end() {
		m.abort()
	}
}

// room says how many of n bytes may be read now; if none, what to wait for.
func (e *End) room(n int) (int, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return int(max(0, min(int64(n), e.limit-e.in.got))), e.resumed
}

// Pause makes the end stop reading when it has got that many bytes in all; a
// read that waits already may still return.
func (e *End) Pause(at int64) { e.setLimit(at) }

// Resume undoes Pause.
func (e *End) Resume() { e.setLimit(noLimit) }

func (e *End) setLimit(limit int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.limit = limit
	close(e.resumed)
	e.resumed = make(chan struct{})
}

// String describes the end, with how many bytes it has got.
func (e *End) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.dial == pending:
		return "dialling"
	case e.dial != up:
		return "dial failed: " + e.dial
	}
	s := "open"
	switch {
	case e.fate == "eof":
		s = "eof"
	case e.fate != "":
		s = "broken: " + e.fate
	}
	if e.closed {
		s += ", closed"
	}
	if e.from != "" {
		s = "from " + e.from + ", " + s
	}
	return s + ", got " + e.in.String()
}
