package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// rounds is how often each figure is measured; relay and Culvert take turns, and
// the median of the ratios counts.
const rounds = 3

// pairOf alternates f over the yardstick and over Culvert.
func pairOf(f func(culvert bool) (float64, error)) (relay, ours, ratio float64, err error) {
	var relays, all, ratios []float64
	for range rounds {
		a, err := f(false)
		if err != nil {
			return 0, 0, 0, fmt.Errorf("relay: %w", err)
		}
		b, err := f(true)
		if err != nil {
			return 0, 0, 0, fmt.Errorf("culvert: %w", err)
		}
		relays, all, ratios = append(relays, a), append(all, b), append(ratios, b/a)
	}
	return median(relays), median(all), median(ratios), nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// spent is the processor time of processes during f.
func spent(f func() error, processes ...*process) (time.Duration, error) {
	before, err := total(processes)
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	after, err := total(processes)
	return after - before, err
}

func total(processes []*process) (sum time.Duration, err error) {
	for _, p := range processes {
		used, err := p.cpu()
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

// bulkRows measures throughput and processor time per GiB.
func (s *stage) bulkRows(ctx context.Context, t *table, size int64) {
	for _, conns := range []int{1, 16} {
		for _, up := range []bool{true, false} {
			what := fmt.Sprintf("bulk, %d connection(s), %s", conns, direction(up))
			cpus := map[bool][]float64{}
			relay, ours, ratio, err := pairOf(func(ours bool) (float64, error) {
				via, processes := s.side(ours)
				var took time.Duration
				used, err := spent(func() (err error) {
					took, err = bulk(ctx, via, conns, size, up)
					return err
				}, processes...)
				if err != nil {
					return 0, err
				}
				cpus[ours] = append(cpus[ours], used.Seconds()/float64(size)*(1<<30))
				return float64(size) / took.Seconds() / (1 << 20), nil
			})
			if err != nil {
				t.fail(what, err)
				continue
			}
			t.add(row{what: what, value: ratio, budget: 0.8, atLeast: true, unit: "x",
				measured: fmt.Sprintf("%.0f MiB/s, relay %.0f", ours, relay)})
			a, b := median(cpus[false]), median(cpus[true])
			t.add(row{what: what + ", CPU per GiB", value: b / a, budget: 1.3, unit: "x",
				measured: fmt.Sprintf("%.2f s, relay %.2f s", b, a)})
		}
	}
}

func direction(up bool) string {
	if up {
		return "up"
	}
	return "down"
}

// side returns the way and the processes of the yardstick or of Culvert.
func (s *stage) side(ours bool) (dial, []*process) {
	if ours {
		return s.viaConnect(s.connect), []*process{s.connect.server, s.connect.agent}
	}
	return s.viaRelay, []*process{s.near, s.far}
}

// latencyRow measures request-response on one connection.
func (s *stage) latencyRow(ctx context.Context, t *table) {
	const what = "request-response p50, 1 connection"
	relay, ours, ratio, err := pairOf(func(ours bool) (float64, error) {
		via, _ := s.side(ours)
		found, err := echoes(ctx, via, 5000, 128)
		return float64(found.quantile(0.5)) / float64(time.Microsecond), err
	})
	if err != nil {
		t.fail(what, err)
		return
	}
	t.add(row{what: what, value: ratio, budget: 1.3, unit: "x", measured: fmt.Sprintf("%.0f us, relay %.0f us", ours, relay)})
}

// churnRows measures dial, echo and close with 16 workers, by HTTP CONNECT and by
// the reusable client.
func (s *stage) churnRows(ctx context.Context, t *table) {
	reusable, err := s.viaClient(ctx, s.grpc)
	if err != nil {
		t.fail("dial+echo+close", err)
		return
	}
	defer reusable.close()
	for _, way := range []struct {
		name string
		via  dial
		c    *culvert
	}{
		{"CONNECT/UDS", s.viaConnect(s.connect), s.connect},
		{"reusable client", reusable.dial, s.grpc},
	} {
		what := "dial+echo+close, 16 workers, " + way.name
		cpus := map[bool][]float64{}
		relay, ours, ratio, err := pairOf(func(ours bool) (float64, error) {
			via, processes, n := dial(s.viaRelay), []*process{s.near, s.far}, 1000
			if ours {
				via, processes, n = way.via, []*process{way.c.server, way.c.agent}, 5000
			}
			var took time.Duration
			used, err := spent(func() (err error) {
				took, err = churn(ctx, via, 16, n)
				return err
			}, processes...)
			if err != nil {
				return 0, err
			}
			cpus[ours] = append(cpus[ours], used.Seconds()/float64(n))
			return float64(n) / took.Seconds(), nil
		})
		if err != nil {
			t.fail(what, err)
			continue
		}
		t.add(row{what: what, value: ratio, budget: 5, atLeast: true, unit: "x", measured: fmt.Sprintf("%.0f/s, relay %.0f/s", ours, relay)})
		a, b := median(cpus[false]), median(cpus[true])
		t.add(row{what: what + ", CPU", value: b / a, budget: 0.2, unit: "x", measured: fmt.Sprintf("%.0f us each, relay %.0f us", b*1e6, a*1e6)})
	}
}

// neighbourRow measures latency beside four stuck readers and four stuck writers.
func (s *stage) neighbourRow(ctx context.Context, t *table) {
	const what = "neighbour of 4 stuck readers and 4 stuck writers, p99"
	via := s.viaConnect(s.connect)
	alone, err := echoes(ctx, via, 5000, 128)
	if err != nil {
		t.fail(what, err)
		return
	}
	for _, reader := range []bool{true, false} {
		release, err := stick(ctx, via, 4, reader)
		if err != nil {
			t.fail(what, err)
			return
		}
		defer release()
	}
	time.Sleep(2 * time.Second) // the stuck ones fill their windows first
	beside, err := echoes(ctx, via, 5000, 128)
	if err != nil {
		t.fail(what, err)
		return
	}
	a, b := alone.quantile(0.99), beside.quantile(0.99)
	t.add(row{what: what, value: float64(b) / float64(a), budget: 2, unit: "x", measured: fmt.Sprintf("%v, undisturbed %v", b, a)})
}
