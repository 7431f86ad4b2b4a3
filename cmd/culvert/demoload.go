package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// dialer opens a tunnel to address.
type dialer func(ctx context.Context, address string) (net.Conn, error)

// tally counts what one kind of traffic through one frontend did.
type tally struct {
	front, kind string

	// Guarded by mu.
	mu        sync.Mutex
	done      int64 // requests, transfers or echoes
	bytes     int64
	failures  int64
	lastError error
	recent    []time.Duration // of the last few hundred
}

func (t *tally) record(took time.Duration, n int64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.failures++
		t.lastError = err
		return
	}
	t.done++
	t.bytes += n
	if t.recent = append(t.recent, took); len(t.recent) > 500 {
		t.recent = t.recent[1:]
	}
}

// figures is a copy of the counters.
type figures struct {
	done, bytes, failures int64
	lastError             error
	p50, p99              time.Duration
}

func (t *tally) figures() figures {
	t.mu.Lock()
	defer t.mu.Unlock()
	sorted := slices.Sorted(slices.Values(t.recent))
	f := figures{done: t.done, bytes: t.bytes, failures: t.failures, lastError: t.lastError}
	if n := len(sorted); n > 0 {
		f.p50, f.p99 = sorted[n/2], sorted[n*99/100]
	}
	return f
}

// traffic runs the three kinds of load through one frontend until ctx ends.
// Each iteration is bounded, and between iterations there is a pause, so that a
// demo left running does not occupy the machine.
func (s *demoStage) traffic(ctx context.Context, front demoFront, dial dialer) ([]*tally, *sync.WaitGroup) {
	var all sync.WaitGroup
	tallies := make([]*tally, 0, 3)
	for _, kind := range []struct {
		name  string
		pause time.Duration
		once  func(context.Context, dialer) (int64, error)
	}{
		{"request", 20 * time.Millisecond, s.request},
		{"bulk", time.Second, s.bulk},
		{"echo", 50 * time.Millisecond, s.echoOnce},
	} {
		t := &tally{front: front.mode, kind: kind.name}
		tallies = append(tallies, t)
		all.Go(func() { repeat(ctx, t, kind.pause, dial, kind.once) })
	}
	return tallies, &all
}

func repeat(ctx context.Context, t *tally, pause time.Duration, dial dialer, once func(context.Context, dialer) (int64, error)) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		attempt, cancel := context.WithTimeout(ctx, 30*time.Second)
		began := time.Now()
		n, err := once(attempt, dial)
		cancel()
		if ctx.Err() != nil {
			return // what the end of the demo cut off is no failure
		}
		t.record(time.Since(began), n, err)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// request is one HTTP request on a tunnel of its own.
func (s *demoStage) request(ctx context.Context, dial dialer) (int64, error) {
	body, err := s.get(ctx, dial, http.MethodGet, "/", nil)
	if err == nil && !bytes.HasPrefix(body, []byte("hello")) {
		err = fmt.Errorf("the endpoint answered %q", body)
	}
	return int64(len(body)), err
}

// bulk sends 32 MiB one way and 32 MiB the other.
func (s *demoStage) bulk(ctx context.Context, dial dialer) (int64, error) {
	const size = 32 << 20
	answer, err := s.get(ctx, dial, http.MethodPost, "/bulk", io.LimitReader(pattern{}, size))
	if err != nil {
		return 0, err
	}
	if got := string(bytes.TrimSpace(answer)); got != fmt.Sprint(size) {
		return 0, fmt.Errorf("the endpoint received %s of %d bytes", got, size)
	}
	body, err := s.get(ctx, dial, http.MethodGet, fmt.Sprintf("/bulk?bytes=%d", size), nil)
	if err == nil && len(body) != size {
		err = fmt.Errorf("received %d of %d bytes", len(body), size)
	}
	return 2 * size, err
}

func (s *demoStage) get(ctx context.Context, dial dialer, method, path string, body io.Reader) ([]byte, error) {
	client := http.Client{Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, address string) (net.Conn, error) { return dial(ctx, address) },
		DisableKeepAlives: true,
	}}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+s.web+path, body)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the endpoint answered %s", response.Status)
	}
	return io.ReadAll(response.Body)
}

// echoOnce sends a random-looking message and checks that it comes back whole,
// the end of the stream included.
func (s *demoStage) echoOnce(ctx context.Context, dial dialer) (int64, error) {
	conn, err := dial(ctx, s.echo)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		conn.SetDeadline(deadline)
	}
	sum := sha256.Sum256([]byte(time.Now().String()))
	message := bytes.Repeat(sum[:], 64)
	if _, err := conn.Write(message); err != nil {
		return 0, err
	}
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		return 0, errors.New("the connection cannot half-close")
	}
	if err := half.CloseWrite(); err != nil {
		return 0, err
	}
	back, err := io.ReadAll(conn)
	if err == nil && !bytes.Equal(back, message) {
		err = fmt.Errorf("the echo returned %d bytes, not the %d that were sent", len(back), len(message))
	}
	return int64(2 * len(message)), err
}
