package routing

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/culvert-proxy/culvert/rig/process"
)

// load makes 200 dials a second, or as many as the machine is able to, until it
// is stopped. Nothing depends on how many they are.
type load struct {
	t    testing.TB
	stop chan struct{}
	over sync.WaitGroup
	done atomic.Int64 // visits that have ended

	mu     sync.Mutex
	visits []visit
}

// visit is one dial and what became of it.
type visit struct {
	subnet int
	began  time.Time
	who    string
	dialed bool
	err    error
}

const (
	interval = time.Second / 200
	atOnce   = 100 // dials under way; more would only wait for the machine
)

// startLoad dials into subnets in turns.
func (w *world) startLoad(d dialer, subnets ...int) *load {
	l := &load{t: w.t, stop: make(chan struct{})}
	l.over.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		room := make(chan struct{}, atOnce)
		for i := 0; ; i++ {
			select {
			case <-tick.C:
			case <-l.stop:
				return
			}
			select {
			case room <- struct{}{}:
			case <-l.stop:
				return
			}
			subnet := subnets[i%len(subnets)]
			l.over.Go(func() {
				v := visit{subnet: subnet, began: time.Now()}
				v.who, v.dialed, v.err = d.visit(w.address(subnet, 1+i%250))
				l.mu.Lock()
				l.visits = append(l.visits, v)
				l.mu.Unlock()
				l.done.Add(1)
				<-room
			})
		}
	})
	return l
}

// more waits for n further visits.
func (l *load) more(n int64) {
	l.t.Helper()
	want := l.done.Load() + n
	process.Eventually(l.t, hang, fmt.Sprintf("%d more dials", n), func() bool { return l.done.Load() >= want })
}

// end stops the load and returns every visit.
func (l *load) end() []visit {
	close(l.stop)
	l.over.Wait()
	return l.visits
}

// inOrder checks one visit: it was answered, in a subnet of one agent by that one.
func (v visit) inOrder() error {
	switch {
	case !v.dialed:
		return fmt.Errorf("the dial into subnet %d failed: %w", v.subnet, v.err)
	case v.err != nil:
		return fmt.Errorf("the tunnel into subnet %d was lost: %w", v.subnet, v.err)
	case namespaces() && v.subnet <= agents && v.who != strconv.Itoa(v.subnet):
		return fmt.Errorf("agent %s served subnet %d", v.who, v.subnet)
	}
	return nil
}
