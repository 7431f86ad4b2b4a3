package flow

import (
	"testing"
	"time"
)

const (
	kib = int64(1 << 10)
	mib = int64(1 << 20)
)

func TestWindowDefaults(t *testing.T) {
	b := NewBudget(1 << 30)
	w := NewWindow(b, WindowConfig{})
	if w.Size() != 256*kib || b.Used() != 256*kib {
		t.Errorf("size %d, charged %d", w.Size(), b.Used())
	}
	w.Release()
	w.Release()
	if b.Used() != 0 {
		t.Errorf("%d bytes are still charged", b.Used())
	}
	if grant := w.Consumed(1, time.Now(), 0); grant != 0 || w.Received(1) != ErrViolation {
		t.Error("a released window is of use")
	}
}

func TestWindowViolation(t *testing.T) {
	w := NewWindow(NewBudget(mib), WindowConfig{Initial: 1000, Min: 1000})
	for _, n := range []int64{600, 400, 0} {
		if err := w.Received(n); err != nil {
			t.Errorf("%d bytes within credit: %v", n, err)
		}
	}
	for _, n := range []int64{1, 1 << 40, -1} {
		if err := w.Received(n); err != ErrViolation {
			t.Errorf("%d bytes without credit: %v", n, err)
		}
	}
}

// TestWindowGrantsInLumps: a grant is worth a packet, and what was consumed is
// granted to the byte.
func TestWindowGrantsInLumps(t *testing.T) {
	w := NewWindow(NewBudget(mib), WindowConfig{Initial: 1000, Min: 1000})
	now := time.Now()
	if err := w.Received(1000); err != nil {
		t.Fatal(err)
	}
	var grants []int64
	for range 100 {
		if g := w.Consumed(10, now, time.Second); g != 0 {
			grants = append(grants, g)
		}
	}
	if len(grants) != 4 {
		t.Errorf("grants %v", grants)
	}
	for _, g := range grants {
		if g != 250 {
			t.Errorf("grants %v", grants)
		}
	}
	if g := w.Consumed(1000, now, time.Second); g != 0 {
		t.Errorf("granted %d for bytes that never arrived", g)
	}
}

// pipe is a link that carries rate bytes per second with a round trip of rtt,
// to a consumer that takes at most appRate.
type pipe struct {
	rate, appRate float64
	rtt           time.Duration
}

// run moves data through w for d of simulated time and returns how many bytes
// were consumed. The sender sends whenever it has credit.
func (p pipe) run(t *testing.T, w *Window, d time.Duration) int64 {
	t.Helper()
	const step = 100 * time.Microsecond
	half := int(p.rtt / 2 / step)
	line := make([]int64, half+1)  // data on its way
	grant := make([]int64, half+1) // credit on its way back
	credit, unread, total := w.Size(), 0.0, int64(0)
	start := time.Unix(1000, 0)
	line0 := 0.0
	for i := range int(d / step) {
		at := i % (half + 1)
		credit += grant[at]
		grant[at] = 0
		arrived := line[at]
		if err := w.Received(arrived); err != nil {
			t.Fatal(err)
		}
		unread += float64(arrived)
		line0 = min(line0+p.rate*step.Seconds(), float64(credit))
		send := int64(line0)
		line0 -= float64(send)
		credit -= send
		line[at] = send
		take := int64(min(unread, p.appRate*step.Seconds()))
		unread -= float64(take)
		total += take
		grant[at] += w.Consumed(take, start.Add(time.Duration(i)*step), p.rtt)
	}
	return total
}

func TestWindowGrowsWithTheLink(t *testing.T) {
	for _, c := range []struct {
		name     string
		pipe     pipe
		min, max int64 // of the window in the end
	}{
		{"1 Gbit/s, 50 ms", pipe{125e6, 1e12, 50 * time.Millisecond}, 6250 * 1000, 16 * mib},
		{"100 Mbit/s, 20 ms", pipe{12.5e6, 1e12, 20 * time.Millisecond}, 256 * kib, 700 * 1000},
		{"a consumer slower than the link", pipe{125e6, 1e6, 50 * time.Millisecond}, 256 * kib, 256 * kib},
		{"10 Gbit/s, 100 ms is more than the maximum", pipe{125e7, 1e12, 100 * time.Millisecond}, 16 * mib, 16 * mib},
	} {
		b := NewBudget(1 << 30)
		w := NewWindow(b, WindowConfig{})
		c.pipe.run(t, w, 3*time.Second) // it doubles every two round trips
		second := c.pipe.run(t, cold(w), time.Second)
		if w.Size() < c.min || w.Size() > c.max {
			t.Errorf("%s: window %d KiB", c.name, w.Size()/kib)
		}
		if b.Used() != w.Size() {
			t.Errorf("%s: charged %d for a window of %d", c.name, b.Used(), w.Size())
		}
		best := min(c.pipe.rate, c.pipe.appRate, float64(w.Size())/c.pipe.rtt.Seconds())
		if float64(second) < 0.85*best {
			t.Errorf("%s: %d bytes in a second, %.0f would fit", c.name, second, best)
		}
	}
}

// cold puts everything on its way in w back to the start: its peer holds all
// credit again.
func cold(w *Window) *Window {
	w.credit, w.held, w.due = w.size, 0, 0
	w.epoch, w.consumed = time.Time{}, 0
	return w
}

// TestWindowReachesTheLinksRate: from a cold start on a long fat link, nine
// tenths of the rate (DESIGN 5).
func TestWindowReachesTheLinksRate(t *testing.T) {
	w := NewWindow(NewBudget(1<<30), WindowConfig{})
	p := pipe{125e6, 1e12, 50 * time.Millisecond}
	if got := p.run(t, w, 10*time.Second); float64(got) < 0.9*1250e6 {
		t.Errorf("%d MB in 10 s of 125 MB/s", got/1e6)
	}
}

// TestWindowShrinksOnlyWhenBudgetIsScarce and never below what it started with.
func TestWindowShrinksOnlyWhenBudgetIsScarce(t *testing.T) {
	b := NewBudget(64 * mib)
	w := NewWindow(b, WindowConfig{})
	pipe{125e6, 1e12, 50 * time.Millisecond}.run(t, w, time.Second)
	large := w.Size()
	slow := pipe{125e6, 1e6, 50 * time.Millisecond}
	slow.run(t, cold(w), 20*time.Second)
	if w.Size() != large {
		t.Errorf("it shrank to %d KiB without need", w.Size()/kib)
	}
	others := b.Grow(1 << 40)
	for b.Limit()-b.Used() > mib {
		others += b.Grow(1 << 40)
	}
	slow.run(t, cold(w), 60*time.Second)
	if w.Size() >= large/2 || w.Size() < 256*kib {
		t.Errorf("it went from %d KiB to %d KiB", large/kib, w.Size()/kib)
	}
	w.Release()
	b.Return(others)
	if b.Used() != 0 {
		t.Errorf("%d bytes are still charged", b.Used())
	}
}

func TestWindowWithoutRoundTripGrows(t *testing.T) {
	w := NewWindow(NewBudget(1<<30), WindowConfig{})
	now := time.Unix(0, 0)
	for range 100 {
		now = now.Add(10 * time.Millisecond)
		if err := w.Received(w.credit); err != nil {
			t.Fatal(err)
		}
		w.Consumed(w.held, now, 0)
	}
	if w.Size() <= 256*kib {
		t.Errorf("window %d KiB", w.Size()/kib)
	}
}

// TestSlowConsumerStillGrants every second or so, however little it is.
func TestSlowConsumerStillGrants(t *testing.T) {
	w := NewWindow(NewBudget(mib), WindowConfig{Initial: 1000, Min: 1000})
	now := time.Unix(0, 0)
	if err := w.Received(1000); err != nil {
		t.Fatal(err)
	}
	last := now
	for range 200 {
		now = now.Add(100 * time.Millisecond)
		if w.Consumed(1, now, time.Second) > 0 {
			if now.Sub(last) > 1100*time.Millisecond {
				t.Errorf("%v without a grant", now.Sub(last))
			}
			last = now
		}
	}
	if now.Sub(last) > time.Second {
		t.Errorf("%v without a grant", now.Sub(last))
	}
}
