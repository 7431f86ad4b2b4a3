package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"sync"
	"time"
)

// bulk moves size bytes in all over conns connections, up or down, and returns
// the time from the first byte's order to the last byte's arrival.
func bulk(ctx context.Context, via dial, conns int, size int64, up bool) (time.Duration, error) {
	each := size / int64(conns)
	open := make([]net.Conn, conns)
	for i := range open {
		conn, err := via(ctx)
		if err != nil {
			return 0, err
		}
		defer conn.Close()
		open[i] = conn
	}
	move := sourceFrom
	if up {
		move = sinkTo
	}
	began := time.Now()
	err := inParallel(conns, func(i int) error { return move(open[i], each) })
	return time.Since(began), err
}

func sinkTo(conn net.Conn, size int64) error {
	if _, err := conn.Write(order(orderSink, size)); err != nil {
		return err
	}
	chunk := make([]byte, 256<<10)
	for left := size; left > 0; {
		n, err := conn.Write(chunk[:min(left, int64(len(chunk)))])
		if err != nil {
			return err
		}
		left -= int64(n)
	}
	_, err := io.ReadFull(conn, chunk[:1])
	return err
}

func sourceFrom(conn net.Conn, size int64) error {
	if _, err := conn.Write(order(orderSource, size)); err != nil {
		return err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{conn}, make([]byte, 256<<10))
	if err == nil && n != size {
		return fmt.Errorf("received %d of %d bytes", n, size)
	}
	return err
}

// inParallel runs f(0..n-1) at once and joins their errors.
func inParallel(n int, f func(i int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// echoes opens one connection and measures n round trips of size bytes.
func echoes(ctx context.Context, via dial, n, size int) (samples, error) {
	conn, err := via(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := conn.Write(order(orderEcho, 0)); err != nil {
		return nil, err
	}
	message, answer := make([]byte, size), make([]byte, size)
	var found samples
	for range n {
		began := time.Now()
		if _, err := conn.Write(message); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(conn, answer); err != nil {
			return nil, err
		}
		found = append(found, time.Since(began))
		if ctx.Err() != nil {
			break
		}
	}
	return found, nil
}

// churn dials, echoes one message and closes, with workers at once, n times.
func churn(ctx context.Context, via dial, workers, n int) (time.Duration, error) {
	work := make(chan struct{}, n)
	for range n {
		work <- struct{}{}
	}
	close(work)
	began := time.Now()
	err := inParallel(workers, func(int) error {
		for range work {
			if _, err := echoes(ctx, via, 1, 64); err != nil {
				return err
			}
		}
		return nil
	})
	return time.Since(began), err
}

// samples are durations of equal events.
type samples []time.Duration

// quantile returns the q-th (0 to 1) of the sorted samples.
func (s samples) quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[int(math.Min(float64(len(sorted)-1), q*float64(len(sorted))))]
}

// stick opens n connections that stall: readers that never read what the
// endpoint pours, or writers to an endpoint that never reads.
func stick(ctx context.Context, via dial, n int, reader bool) (release func(), err error) {
	var open []net.Conn
	release = func() {
		for _, conn := range open {
			conn.Close()
		}
	}
	for range n {
		conn, err := via(ctx)
		if err != nil {
			release()
			return nil, err
		}
		open = append(open, conn)
		if reader {
			_, err = conn.Write(order(orderSource, 1<<40))
		} else {
			_, err = conn.Write(order(orderStuck, 0))
			go func() { // writes until the connection takes no more, and ends with it
				chunk := make([]byte, 64<<10)
				for {
					if _, err := conn.Write(chunk); err != nil {
						return
					}
				}
			}()
		}
		if err != nil {
			release()
			return nil, err
		}
	}
	return release, nil
}
