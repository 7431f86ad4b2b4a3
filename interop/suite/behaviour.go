package suite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// guard closes c if it is still in use after the hang limit; the result stops it.
func guard(c net.Conn) func() bool {
	return time.AfterFunc(hangLimit, func() { c.Close() }).Stop
}

// parallel runs f for every i below n, so many at a time, and fails the test
// with the first of the errors.
func (s *stage) parallel(n, workers int, f func(i int) error) {
	s.Helper()
	var next atomic.Int64
	var failed atomic.Int64
	var first sync.Once
	var wait sync.WaitGroup
	for range workers {
		wait.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				if err := f(int(i)); err != nil {
					failed.Add(1)
					first.Do(func() { s.Errorf("number %d: %v", i, err) })
				}
			}
		})
	}
	wait.Wait()
	if n := failed.Load(); n > 1 {
		s.Errorf("%d failed in all", n)
	}
}

// banners dials an endpoint that speaks first. Whoever may lose bytes may do so
// in one of 600 dials, but never have a gap.
func (s *stage) banners(w who, dial dialer, n int) {
	s.Helper()
	want := bannerText()
	var cut atomic.Int64
	s.parallel(n, 60, func(int) error {
		ctx, cancel := context.WithTimeout(context.Background(), hangLimit)
		defer cancel()
		c, err := dial(ctx, "tcp", s.endpoint.banner)
		if err != nil {
			return err
		}
		defer c.Close()
		defer guard(c)()
		buf := make([]byte, len(want))
		got, err := io.ReadFull(c, buf)
		switch {
		case !strings.HasPrefix(want, string(buf[:got])):
			return fmt.Errorf("a gap: %q", buf[:got])
		case err == nil:
			return nil
		case w.lossy:
			cut.Add(1)
			return nil
		}
		return fmt.Errorf("%d bytes of the banner, then %w", got, err)
	})
	if lost := cut.Load(); lost > int64(n)/600 {
		s.Errorf("%d of %d banners were not whole", lost, n)
	}
	s.Logf("%d of %d banners whole", int64(n)-cut.Load(), n)
}

// exchange sends a request over c and wants it back.
func exchange(c net.Conn, r *rand.Rand) error {
	request := make([]byte, 1+r.IntN(4096))
	for i := range request {
		request[i] = byte(r.Uint32())
	}
	if _, err := c.Write(request); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	got := make([]byte, len(request))
	if _, err := io.ReadFull(c, got); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if string(got) != string(request) {
		return errors.New("other bytes came back")
	}
	return nil
}

// echo opens a connection on which everything comes back.
func (s *stage) echo(ctx context.Context, dial dialer) (net.Conn, error) {
	return s.ask(ctx, dial, "echo\n")
}

// ask opens a connection to the endpoint and says what is wanted on it.
func (s *stage) ask(ctx context.Context, dial dialer, line string) (net.Conn, error) {
	c, err := dial(ctx, "tcp", s.endpoint.talk)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	if _, err := io.WriteString(c, line); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// exchanges are short tunnels: dial, request, response, close.
func (s *stage) exchanges(w who, dial dialer, n int) {
	s.Helper()
	s.parallel(n, 64, func(i int) error {
		ctx, cancel := context.WithTimeout(context.Background(), hangLimit)
		defer cancel()
		c, err := s.echo(ctx, dial)
		if err != nil {
			return err
		}
		defer guard(c)()
		if err := exchange(c, rand.New(rand.NewPCG(uint64(i), 0))); err != nil {
			c.Close()
			return err
		}
		// The library's Close may take the end of its tunnel, which comes right
		// behind the answer to the close, for that answer.
		if err := c.Close(); err != nil && !(w.lossy && err.Error() == "tunnel closed") {
			return fmt.Errorf("close: %w", err)
		}
		return nil
	})
}

// bulk sends n bytes up and n down at once, and checks both.
func (s *stage) bulk(dial dialer, n int64) {
	s.Helper()
	want := sum(n)
	s.parallel(2, 2, func(i int) error {
		ctx, cancel := context.WithTimeout(context.Background(), hangLimit)
		defer cancel()
		if i == 0 {
			return s.up(ctx, dial, n, want)
		}
		return s.down(ctx, dial, n, want)
	})
}

func (s *stage) up(ctx context.Context, dial dialer, n int64, want string) error {
	c, err := s.ask(ctx, dial, fmt.Sprintf("take %d\n", n))
	if err != nil {
		return err
	}
	defer c.Close()
	defer guard(c)()
	// In pieces: the library makes one packet of each Write, whatever its size.
	if _, err := io.CopyBuffer(onlyWriter{c}, io.LimitReader(stream(), n), make([]byte, 32<<10)); err != nil {
		return fmt.Errorf("up: %w", err)
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil {
		return fmt.Errorf("up: read the sum: %w", err)
	}
	if string(got) != want {
		return errors.New("up: other bytes arrived")
	}
	return nil
}

func (s *stage) down(ctx context.Context, dial dialer, n int64, want string) error {
	c, err := s.ask(ctx, dial, fmt.Sprintf("give %d\n", n))
	if err != nil {
		return err
	}
	defer c.Close()
	defer guard(c)()
	got, err := sumOf(c, n)
	if err != nil {
		return fmt.Errorf("down: %w", err)
	}
	if got != want {
		return errors.New("down: other bytes arrived")
	}
	return nil
}

// onlyWriter hides what else a connection can do.
type onlyWriter struct{ io.Writer }

// canceled cancels dials, most of them before their answer has come; the
// endpoint never closes by itself.
func (s *stage) canceled(dial dialer, n int) {
	s.Helper()
	s.parallel(n, 32, func(i int) error {
		r := rand.New(rand.NewPCG(uint64(i), 1))
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.Int64N(int64(10*time.Millisecond))))
		defer cancel()
		c, err := dial(ctx, "tcp", s.endpoint.talk)
		if err != nil {
			return nil // that was the point
		}
		c.Close()
		return nil
	})
	s.settled(settleLimit)
}

// settleLimit is how long the rest of tunnels that were given up may take. What
// is aborted is gone in a second; a machine that is busy gets more.
const settleLimit = 15 * time.Second

// stuck has four connections that nobody reads and four whose endpoint reads
// nothing, and wants everything else to go on.
func (s *stage) stuck(w who, dial dialer) {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hangLimit)
	defer cancel()
	neighbour, err := s.echo(ctx, dial)
	if err != nil {
		s.Fatal(err)
	}
	stuck := []net.Conn{neighbour}
	var over atomic.Bool
	var writers sync.WaitGroup
	for range 4 {
		reader, err := s.ask(ctx, dial, fmt.Sprintf("give %d\n", 64<<20))
		if err != nil {
			s.Fatal(err)
		}
		writer, err := s.ask(ctx, dial, "hold\n")
		if err != nil {
			s.Fatal(err)
		}
		stuck = append(stuck, reader, writer)
		writers.Go(func() {
			for piece := make([]byte, 32<<10); !over.Load(); {
				if _, err := writer.Write(piece); err != nil {
					return
				}
			}
		})
	}
	s.neighbours(ctx, neighbour, dial)
	over.Store(true)
	if w.closesLate {
		s.endpoint.letGo()
	}
	var closes sync.WaitGroup
	for _, c := range stuck {
		closes.Go(func() { c.Close() })
	}
	closes.Wait()
	writers.Wait()
	s.idle(settleLimit + 10*time.Second) // an orderly close of a stuck tunnel takes its time
	s.endpoint.letGo()
	s.settled(settleLimit)
}

// neighbours uses a connection beside stuck ones, and new ones.
func (s *stage) neighbours(ctx context.Context, neighbour net.Conn, dial dialer) {
	s.Helper()
	// Without flow control each of the stuck tunnels may stall its link for a
	// second; then it is closed.
	const patience = 20 * time.Second
	r := rand.New(rand.NewPCG(5, 6))
	for range 100 {
		stop := time.AfterFunc(patience, func() { neighbour.Close() })
		if err := exchange(neighbour, r); err != nil {
			s.Fatalf("a neighbour of stuck tunnels: %v", err)
		}
		stop.Stop()
	}
	for range 20 {
		ctx, cancel := context.WithTimeout(ctx, patience)
		c, err := s.echo(ctx, dial)
		cancel()
		if err != nil {
			s.Fatalf("a new tunnel beside stuck ones: %v", err)
		}
		if err := exchange(c, r); err != nil {
			s.Fatalf("a new tunnel beside stuck ones: %v", err)
		}
		c.Close()
	}
}

// refused dials an address where nobody listens.
func (s *stage) refused(dial dialer) {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hangLimit)
	defer cancel()
	_, err := dial(ctx, "tcp", s.endpoint.refused)
	if err == nil || !strings.Contains(err.Error(), "refused") {
		s.Errorf("a dial to a closed port: %v", err)
	}
}
