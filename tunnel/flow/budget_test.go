package flow

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

func TestBudgetInitialShrinks(t *testing.T) {
	b := NewBudget(64 * mib)
	const low, high = 16 * 1024, 256 * 1024
	last, n := int64(high), 0
	for b.Limit() > b.Used() {
		got := b.Initial(low, high)
		if got > last || got < low {
			t.Fatalf("window %d is %d bytes after %d", n, got, last)
		}
		if n < 100 && got != high {
			t.Errorf("window %d is only %d bytes while the budget is nearly empty", n, got)
		}
		last = got
		n++
	}
	if last != low {
		t.Errorf("the last window is %d bytes", last)
	}
	if got := b.Initial(low, high); got != low {
		t.Errorf("beyond the budget: %d bytes", got)
	}
	if got := b.Grow(1); got != 0 {
		t.Errorf("it grew by %d bytes beyond the budget", got)
	}
}

func TestBudgetGrowLeavesSomething(t *testing.T) {
	b := NewBudget(mib)
	if got := b.Grow(100); got != 100 {
		t.Errorf("got %d of 100", got)
	}
	if got := b.Grow(1 << 40); got != (mib-100)/4 {
		t.Errorf("got %d", got)
	}
	if got := b.Grow(-5); got != 0 {
		t.Errorf("got %d for -5", got)
	}
	b.Return(b.Used())
	if b.Used() != 0 {
		t.Errorf("%d left", b.Used())
	}
}

// FuzzWindows plays arbitrary traffic over several windows of one budget, with
// peers that use every byte they are granted, and checks what is promised: the
// budget is charged with exactly the windows' sizes, never more than its limit
// and a minimum for each, a peer within its credit is never refused, no peer is
// left without credit for ever, and in the end all is given back.
func FuzzWindows(f *testing.F) {
	f.Add(uint32(1<<20), []byte("\x00\x01\x02\x03\x10\x20\x30\x40\xff\xfe"))
	f.Add(uint32(0), []byte("00112233445566778899aabbccddeeff"))
	rnd := rand.New(rand.NewPCG(1, 2))
	long := make([]byte, 4000)
	for i := range long {
		long[i] = byte(rnd.Uint32())
	}
	f.Add(uint32(100000), long)
	f.Add(uint32(3<<20), long)
	f.Fuzz(func(t *testing.T, limit uint32, ops []byte) {
		playWindows(t, NewBudget(int64(limit)), ops)
	})
}

// peerWindow is a window and what its peer knows.
type peerWindow struct {
	w      *Window
	credit int64
}

func playWindows(t *testing.T, b *Budget, ops []byte) {
	cfg := WindowConfig{Initial: 64 * kib, Min: 4 * kib, Max: mib}
	var open []*peerWindow
	now := time.Unix(0, 0)
	most := 0
	for i := 0; i+1 < len(ops); i += 2 {
		op, arg := ops[i], int64(ops[i+1])
		now = now.Add(time.Duration(arg) * 100 * time.Microsecond)
		if len(open) == 0 || op%16 == 0 {
			w := NewWindow(b, cfg)
			open = append(open, &peerWindow{w, w.Size()})
			most = max(most, len(open))
			continue
		}
		n := int(op/16) % len(open)
		p := open[n]
		switch op % 16 {
		case 1:
			p.w.Release()
			open = append(open[:n], open[n+1:]...)
		case 2, 3, 4, 5, 6:
			send := p.credit * (arg + 1) / 256
			if err := p.w.Received(send); err != nil {
				t.Fatalf("%d bytes of %d refused", send, p.credit)
			}
			p.credit -= send
		case 7:
			if !errors.Is(p.w.Received(p.credit+1+arg), ErrViolation) {
				t.Fatal("more than the credit was accepted")
			}
		default:
			p.credit += p.w.Consumed(p.w.held*(arg+1)/256, now, time.Duration(op)*time.Millisecond)
		}
		checkWindows(t, b, open, int64(most)*cfg.Min, cfg)
	}
	for _, p := range open {
		p.credit += p.w.Consumed(p.w.held, now, 0)
		if p.credit <= 0 {
			t.Fatalf("a peer whose bytes are all consumed has no credit: %+v", *p.w)
		}
		p.w.Release()
	}
	if b.Used() != 0 {
		t.Fatalf("%d bytes are still charged", b.Used())
	}
}

func checkWindows(t *testing.T, b *Budget, open []*peerWindow, slack int64, cfg WindowConfig) {
	t.Helper()
	sum := int64(0)
	for _, p := range open {
		w := p.w
		if w.size != w.credit+w.held+w.due || w.credit != p.credit || min(w.credit, w.held, w.due) < 0 {
			t.Fatalf("peer has %d: %+v", p.credit, *w)
		}
		if w.size > cfg.Max || w.size < cfg.Min {
			t.Fatalf("size %d", w.size)
		}
		sum += w.size
	}
	if b.Used() != sum {
		t.Fatalf("charged %d for windows of %d", b.Used(), sum)
	}
	if sum > b.Limit()+slack {
		t.Fatalf("%d bytes charged to a budget of %d with %d to spare", sum, b.Limit(), slack)
	}
}

// TestBudgetConcurrently: whatever many tunnels do at once, it adds up.
func TestBudgetConcurrently(t *testing.T) {
	const tunnels, low, high = 8, 4096, 65536
	b := NewBudget(mib)
	var wg sync.WaitGroup
	for i := range tunnels {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 0))
			for range 2000 {
				mine := b.Initial(low, high)
				for range rnd.IntN(5) {
					mine += b.Grow(rnd.Int64N(mib))
				}
				if used := b.Used(); used > b.Limit()+tunnels*low {
					t.Errorf("%d bytes charged", used)
				}
				b.Return(mine)
			}
		})
	}
	wg.Wait()
	if b.Used() != 0 {
		t.Errorf("%d bytes are still charged", b.Used())
	}
}
