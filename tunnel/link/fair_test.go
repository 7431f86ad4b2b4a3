package link

import (
	"testing"
	"testing/synctest"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// bulk keeps n tunnels, numbered from 1, full of payloads of a size until their
// link ends.
func bulk(l *Link, n, size int) {
	for i := range n {
		s := l.NewSender(wire.ConnectionID(i+1), 1<<40)
		go func() {
			for s.Write(bytesOf(size)) == nil {
			}
		}()
	}
	synctest.Wait()
}

// TestSmallTunnelBesideBulk: however much the others have queued, a small
// message waits for one turn of each at most.
func TestSmallTunnelBesideBulk(t *testing.T) {
	for _, others := range []int{1, 4, 16} {
		synctest.Test(t, func(t *testing.T) {
			l, f := gated(t, Config{Extensions: noPing})
			small := l.NewSender(1000, 1<<30)
			bulk(l, others, 32<<10)
			f.open(20)
			f.take(t)
			for range 20 {
				_ = small.Write(bytesOf(100))
				before := 0
				for done := false; !done; {
					f.open(1)
					for _, s := range f.take(t) {
						done = s.ConnectionID == 1000
						before += len(s.data)
					}
				}
				// A turn is at most one packet beyond what was saved up, and one
				// packet was already on its way.
				if limit := others*(quantum+MaxData) + MaxData; before > limit {
					t.Fatalf("%d bytes of %d others went first, want at most %d", before, others, limit)
				}
			}
		})
	}
}

// TestSharesAreEqual: by bytes, whatever the size of the writes.
func TestSharesAreEqual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, f := gated(t, Config{Extensions: noPing})
		for i, size := range []int{32 << 10, 32 << 10, 5000, 700, 20 << 10} {
			s := l.NewSender(wire.ConnectionID(i), 1<<40)
			go func() {
				for s.Write(bytesOf(size)) == nil {
				}
			}()
		}
		synctest.Wait()
		for range 2000 { // one by one: everybody is back before the next turn
			f.open(1)
		}
		got := make([]int, 5)
		for _, s := range f.take(t) {
			if s.Type == wire.Data {
				got[s.ConnectionID] += len(s.data)
			}
		}
		for i, n := range got {
			if n < got[0]*9/10 || n > got[0]*11/10 {
				t.Errorf("tunnel %d sent %d bytes, tunnel 0 %d", i, n, got[0])
			}
		}
	})
}

// TestDebtIsRemembered: a tunnel whose queue runs empty after each packet gains
// nothing by it.
func TestDebtIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, f := gated(t, Config{Extensions: noPing})
		bulk(l, 1, 20<<10)
		drip := l.NewSender(2, 1<<40)
		got := map[wire.ConnectionID]int{}
		for range 400 {
			if drip.Queued() == 0 {
				_ = drip.Write(bytesOf(MaxData))
			}
			f.open(1)
			for _, s := range f.take(t) {
				got[s.ConnectionID] += len(s.data)
			}
		}
		if got[2] > got[1]*11/10 || got[2] < got[1]/2 {
			t.Errorf("the dripping tunnel sent %d bytes, the full one %d", got[2], got[1])
		}
	})
}
