package behaviour

import (
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// pausing reads half of what there is, lets pause happen, and reads the rest.
func pausing(r io.Reader, half int64, pause func()) digest {
	d := newDigester()
	if _, err := io.CopyN(d, r, half); err != nil {
		return d.end(err)
	}
	pause()
	_, err := io.CopyBuffer(d, struct{ io.Reader }{r}, make([]byte, chunk))
	return d.end(err)
}

// TestBehaviour04Pause: a reader that pauses in the middle of a transfer gets
// every byte. Here through real processes and the kernel: a pause lasts until
// the writer has come to a standstill; in a soak, for 15 s and 60 s. In fake time
// the scenario pause-in-the-middle of package rig lasts a minute.
func TestBehaviour04Pause(t *testing.T) {
	const size = 64 << 20
	pauses := scaled([]time.Duration{0}, []time.Duration{15 * time.Second, time.Minute})
	eachKindAtOnce(t, func(t *testing.T, k kind) {
		s := newStage(t, k, options{})
		var runs runs
		for _, d := range pauses {
			runs.add(fmt.Sprintf("up-%v", d), func(t *testing.T) { s.pauseUp(t, size, d) })
			runs.add(fmt.Sprintf("down-%v", d), func(t *testing.T) { s.pauseDown(t, size, d) })
		}
		runs.together(t)
	})
}

// counted counts what is written.
type counted struct {
	io.Writer
	n atomic.Int64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.n.Add(int64(n))
	return n, err
}

// pause waits for the time, or with none until the writer does not get on.
func (c *counted) pause(d time.Duration) {
	if d > 0 {
		after(d)
		return
	}
	last, since := int64(-1), time.Now()
	settled(hang, func() string {
		if n := c.n.Load(); n != last {
			last, since = n, time.Now()
		}
		if time.Since(since) < settledFor {
			return "the writer gets on"
		}
		return ""
	})
}

func (s *stage) pauseUp(t *testing.T, size int64, d time.Duration) {
	var writer counted
	arrived := make(chan digest, 1)
	e := newEndpoint(t, func(_ *endpoint, c *net.TCPConn) {
		arrived <- pausing(c, size/2, func() { writer.pause(d) })
	})
	c := s.mustDial(t, e.addr)
	writer.Writer = c
	if err := give(&writer, 4, size); err != nil {
		t.Fatalf("write: %v", err)
	}
	c.Close()
	compare(t, arrived, expected(4, size))
}

func (s *stage) pauseDown(t *testing.T, size int64, d time.Duration) {
	var writer counted
	e := newEndpoint(t, func(_ *endpoint, c *net.TCPConn) {
		writer.Writer = c
		give(&writer, 4, size)
	})
	c := s.mustDial(t, e.addr)
	defer c.Close()
	arrived := make(chan digest, 1)
	go func() { arrived <- pausing(c, size/2, func() { writer.pause(d) }) }()
	compare(t, arrived, expected(4, size))
}
