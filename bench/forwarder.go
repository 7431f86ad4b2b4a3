package main

import (
	"context"
	"net"
	"sync"
	"time"
)

// path describes a link that the forwarder plays: what its rate is, how long a
// round trip takes, and that it holds at most one bandwidth-delay product a way.
type path struct {
	bytesPerSecond float64
	roundTrip      time.Duration
}

// buffer is one bandwidth-delay product in bytes.
func (l path) buffer() int {
	return int(l.bytesPerSecond * l.roundTrip.Seconds())
}

// forward listens on address and carries each connection to target over l.
func forward(ctx context.Context, address, target string, l path) error {
	listener, err := listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	var dialer net.Dialer
	return serve(ctx, listener, func(near net.Conn) {
		far, err := dialer.DialContext(ctx, "tcp", target)
		if err != nil {
			near.Close()
			return
		}
		// Small socket buffers: what waits must wait in the delay line, where it is counted.
		for _, conn := range []net.Conn{near, far} {
			tcp := conn.(*net.TCPConn)
			tcp.SetReadBuffer(64 << 10)  //nolint:errcheck // a larger buffer only blurs the figure
			tcp.SetWriteBuffer(64 << 10) //nolint:errcheck // the same
		}
		go newDelayLine(l).run(far, near)
		newDelayLine(l).run(near, far)
	})
}

// segment is a piece in flight.
type segment struct {
	data []byte
	due  time.Time
}

// delayLine is one direction: a bottleneck that sends at a rate, then a pipe
// that takes half a round trip.
type delayLine struct {
	path path

	// Guarded by mu.
	mu       sync.Mutex
	changed  *sync.Cond
	segments []segment
	held     int
	ended    bool
	free     time.Time // when the bottleneck has sent all it was given
}

func newDelayLine(l path) *delayLine {
	d := &delayLine{path: l}
	d.changed = sync.NewCond(&d.mu)
	return d
}

func (d *delayLine) run(dst, src net.Conn) {
	go d.deliver(dst, src)
	for {
		buf := make([]byte, 16<<10)
		n, err := src.Read(buf)
		if n > 0 {
			d.take(buf[:n])
		}
		if err != nil {
			d.mu.Lock()
			d.ended = true
			d.changed.Broadcast()
			d.mu.Unlock()
			return
		}
	}
}

// take waits for room and puts data on its way.
func (d *delayLine) take(data []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.held+len(data) > d.path.buffer() && d.held > 0 {
		d.changed.Wait()
	}
	now := time.Now()
	if d.free.Before(now) {
		d.free = now
	}
	d.free = d.free.Add(time.Duration(float64(len(data)) / d.path.bytesPerSecond * float64(time.Second)))
	d.segments = append(d.segments, segment{data, d.free.Add(d.path.roundTrip / 2)})
	d.held += len(data)
	d.changed.Broadcast()
}

func (d *delayLine) deliver(dst, src net.Conn) {
	defer dst.Close()
	defer src.Close()
	for {
		d.mu.Lock()
		for len(d.segments) == 0 && !d.ended {
			d.changed.Wait()
		}
		if len(d.segments) == 0 {
			d.mu.Unlock()
			return
		}
		next := d.segments[0]
		d.segments = d.segments[1:]
		d.mu.Unlock()
		if wait := time.Until(next.due); wait > 0 {
			time.Sleep(wait)
		}
		_, err := dst.Write(next.data)
		d.mu.Lock()
		d.held -= len(next.data)
		d.changed.Broadcast()
		d.mu.Unlock()
		if err != nil {
			return
		}
	}
}
