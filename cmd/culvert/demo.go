package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"
)

// demo starts everything, pushes traffic through both frontends and shows what
// happens, until it is interrupted; with --once for a few seconds, and its exit
// status then says whether everything worked.
func demo(ctx context.Context, args []string, std streams) error {
	flags := pflag.NewFlagSet("culvert demo", pflag.ContinueOnError)
	flags.SetOutput(std.err)
	once := flags.Bool("once", false, "end by itself after --for, with status 1 if anything failed")
	length := flags.Duration("for", 8*time.Second, "how long --once lets traffic run")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil
		}
		return err
	}
	fmt.Fprintln(std.out, "starting a CA, 2 servers (HTTP CONNECT and gRPC frontends), 2 agents and an endpoint ...")
	s, err := newDemoStage(ctx)
	if s != nil {
		defer s.close()
	}
	if err != nil {
		return err
	}
	for _, url := range s.urls {
		fmt.Fprintln(std.out, url)
	}
	if *once {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *length)
		defer cancel()
	}
	return s.show(ctx, std.out, *once)
}

// show runs the traffic and prints the table once a second until ctx ends.
func (s *demoStage) show(ctx context.Context, out io.Writer, once bool) error {
	var tallies []*tally
	var running []*sync.WaitGroup
	for _, front := range s.fronts {
		dial, release, err := s.dialer(ctx, front)
		if err != nil {
			return err
		}
		defer release()
		counted, wait := s.traffic(ctx, front, dial)
		tallies = append(tallies, counted...)
		running = append(running, wait)
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	screen := &screen{out: out, live: isTerminal(out)}
	began := time.Now()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			if screen.live || !once {
				screen.draw(tallies, time.Since(began))
			}
		}
		if err := s.dead(); err != nil {
			return err
		}
	}
	for _, wait := range running {
		wait.Wait()
	}
	screen.draw(tallies, time.Since(began))
	return verdict(tallies)
}

// verdict is an error unless every kind of traffic worked and none failed.
func verdict(tallies []*tally) error {
	var errs []error
	for _, t := range tallies {
		f := t.figures()
		if f.failures > 0 {
			errs = append(errs, fmt.Errorf("%s through %s: %d failures, the last: %w", t.kind, t.front, f.failures, f.lastError))
		}
		if f.done == 0 {
			errs = append(errs, fmt.Errorf("%s through %s: nothing came through", t.kind, t.front))
		}
	}
	return errors.Join(errs...)
}

// screen draws the table; on a terminal over the one before.
type screen struct {
	out   io.Writer
	live  bool
	drawn int // lines
	last  map[*tally]figures
	at    time.Duration // of the drawing before
}

func (s *screen) draw(tallies []*tally, since time.Duration) {
	if s.live && s.drawn > 0 {
		fmt.Fprintf(s.out, "\033[%dA\033[J", s.drawn)
	}
	fmt.Fprintf(s.out, "\n%s\n", since.Round(time.Second))
	w := tabwriter.NewWriter(s.out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "frontend\ttraffic\tdone\tper second\tMiB/s\tp50\tp99\tfailures\t")
	seen, seconds := map[*tally]figures{}, max(since-s.at, time.Millisecond).Seconds()
	for _, t := range tallies {
		now, before := t.figures(), s.last[t]
		seen[t] = now
		fmt.Fprintf(w, "%s\t%s\t%d\t%.1f\t%.1f\t%v\t%v\t%d\t\n", t.front, t.kind, now.done, float64(now.done-before.done)/seconds,
			float64(now.bytes-before.bytes)/(1<<20)/seconds, now.p50.Round(10*time.Microsecond), now.p99.Round(10*time.Microsecond), now.failures)
	}
	w.Flush() //nolint:errcheck // standard output that is gone cannot be told
	s.last, s.at, s.drawn = seen, since, len(tallies)+3
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// dialer returns the way through front, and what releases it.
func (s *demoStage) dialer(ctx context.Context, front demoFront) (dialer, func(), error) {
	if front.mode == "grpc" {
		tunnels, err := openTunnels(ctx, target{socket: front.socket})
		if err != nil {
			return nil, nil, err
		}
		return tunnels.dial, tunnels.close, nil
	}
	return func(ctx context.Context, address string) (net.Conn, error) {
		return dialConnect(ctx, target{socket: front.socket}, address)
	}, func() {}, nil
}
