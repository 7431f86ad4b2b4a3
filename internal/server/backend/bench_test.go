package backend

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// bigRouter has 10,000 agents and 20,000 prefixes, half of them IPv6.
func bigRouter(b *testing.B, first Strategy, zone string) (*Router[*fake], []*fake, []Member) {
	b.Helper()
	strategies := []Strategy{first}
	for _, s := range Strategies() {
		if s != first {
			strategies = append(strategies, s)
		}
	}
	r := New[*fake](Config{Strategies: strategies, FailureZone: zone})
	agents, members := make([]*fake, 10000), make([]Member, 10000)
	for i := range agents {
		agents[i] = &fake{id: fmt.Sprint("agent", i)}
		agents[i].load.Store(rand.Int64N(100))
		members[i] = member(b, agents[i].id, fmt.Sprintf(
			"host=node%d.example&host=*.svc%d.example&ipv4=10.0.%d.%d&cidr=10.%d.%d.0/24&cidr=fd00:%x::/48&default-route=true&failure-zone=z%d",
			i, i, i/256, i%256, 1+i/256, i%256, i, i%3))
		r.Join(agents[i], members[i])
	}
	return r, agents, members
}

func BenchmarkPick(b *testing.B) {
	for _, c := range []struct {
		name     string
		first    Strategy
		zone     string
		draining bool // half of the agents
		address  string
	}{
		{"host", DestHost, "", false, "node7777.example:10250"},
		{"address", DestHost, "", false, "10.0.30.97:10250"},
		{"pattern", DestHost, "", false, "a.b.svc7777.example:443"},
		{"cidr4", DestCIDR, "", false, "10.31.97.5:10250"},
		{"cidr6", DestCIDR, "", false, "[fd00:1e61::5]:10250"},
		{"default", Default, "", false, "somewhere:443"},
		{"zone", Default, "z1", false, "somewhere:443"},
		{"draining", Default, "", true, "somewhere:443"},
		{"fallthrough", DestHost, "", false, "nobody.knows.this.example:443"},
	} {
		b.Run(c.name, func(b *testing.B) {
			r, agents, _ := bigRouter(b, c.first, c.zone)
			for i, a := range agents {
				a.draining.Store(c.draining && i%2 == 0)
			}
			tried := agents[5]
			skip := func(x *fake) bool { return x == tried }
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if _, ok := r.Pick(c.address, skip); !ok {
					b.Fatal("nobody serves it")
				}
			}
		})
	}
}

func BenchmarkPickParallel(b *testing.B) {
	r, _, _ := bigRouter(b, DestCIDR, "")
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r.Pick("10.31.97.5:10250", nil)
		}
	})
}

// BenchmarkPickDuringChurn looks up while so many agents a second leave or join,
// and reports how long the slowest lookups took; 0 is what the machine adds.
func BenchmarkPickDuringChurn(b *testing.B) {
	for _, perSecond := range []int{0, 1000, 10000} {
		b.Run(fmt.Sprint(perSecond), func(b *testing.B) { pickDuringChurn(b, perSecond) })
	}
}

func pickDuringChurn(b *testing.B, perSecond int) {
	r, agents, members := bigRouter(b, DestCIDR, "")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			for j := range perSecond / 200 {
				n := (i*perSecond/200 + j) % len(agents)
				r.Leave(agents[n])
				r.Join(agents[n], members[n])
			}
		}
	})
	took := make([]time.Duration, 0, b.N)
	b.ResetTimer()
	for range b.N {
		before := time.Now()
		r.Pick("10.31.97.5:10250", nil)
		took = append(took, time.Since(before))
	}
	b.StopTimer()
	close(stop)
	wg.Wait()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*999/1000].Nanoseconds()), "p99.9-ns")
	b.ReportMetric(float64(took[len(took)-1].Nanoseconds()), "max-ns")
}

// BenchmarkJoinLeave is one agent that leaves and comes back.
func BenchmarkJoinLeave(b *testing.B) {
	r, agents, members := bigRouter(b, DestHost, "")
	b.ReportAllocs()
	b.ResetTimer()
	for n := range b.N {
		i := n % len(agents)
		r.Leave(agents[i])
		r.Join(agents[i], members[i])
	}
}

// TestPickDoesNotAllocate holds what the benchmarks measure.
func TestPickDoesNotAllocate(t *testing.T) {
	r := New[*fake](Config{Strategies: Strategies(), FailureZone: "z"})
	for i := range 100 {
		r.Join(&fake{}, member(t, fmt.Sprint(i), fmt.Sprintf("host=n%d&host=*.x&cidr=10.%d.0.0/16&cidr=10.0.0.0/8", i, i)))
	}
	tried := &fake{}
	skip := func(b *fake) bool { return b == tried }
	for _, address := range []string{"n1:1", "a.b.x:1", "10.3.0.1:1", "10.200.0.1:1", "[fd00::1]:1", "nobody:1"} {
		if n := testing.AllocsPerRun(100, func() { r.Pick(address, skip) }); n != 0 {
			t.Errorf("Pick(%s) allocates %v times", address, n)
		}
	}
}
