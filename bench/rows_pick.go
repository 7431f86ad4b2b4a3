package main

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/culvert-proxy/culvert/internal/server/backend"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// idleBackend is a backend without load.
type idleBackend struct{ load int64 }

func (b *idleBackend) Load() int64    { return b.load }
func (b *idleBackend) Draining() bool { return false }
func (b *idleBackend) Suspect() bool  { return false }

// pickRows measures choosing a backend.
func pickRows(t *table) {
	router := backend.New[*idleBackend](backend.Config{})
	for i := range routedAgents {
		router.Join(&idleBackend{load: int64(i % 7)}, backend.Member{AgentID: strconv.Itoa(i)})
	}
	t.add(lookup("choosing a backend among 10,000", router, "10.0.0.1:443"))

	members, err := prefixed()
	if err != nil {
		t.fail("lookup among 10,000 agents and 20,000 prefixes", err)
		return
	}
	router = backend.New[*idleBackend](backend.Config{Strategies: backend.Strategies()})
	agents := make([]*idleBackend, len(members))
	for i, m := range members {
		agents[i] = &idleBackend{load: int64(i % 7)}
		router.Join(agents[i], m)
	}
	t.add(lookup("lookup among 10,000 agents and 20,000 prefixes", router, "10.31.97.5:10250"))
	churnRow(t, router, agents, members)
}

const routedAgents = 10000

// prefixed is that many agents, each with an IPv4 and an IPv6 prefix of its own.
func prefixed() ([]backend.Member, error) {
	members := make([]backend.Member, routedAgents)
	for i := range members {
		ids, err := wire.ParseIdentifiers(fmt.Sprintf("host=node%d.example&cidr=10.%d.%d.0/24&cidr=fd00:%x::/48", i, 1+i/256, i%256, i))
		if err != nil {
			return nil, err
		}
		members[i] = backend.Member{AgentID: strconv.Itoa(i), Identifiers: ids}
	}
	return members, nil
}

// lookup measures one choice.
func lookup(what string, router *backend.Router[*idleBackend], address string) row {
	result := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := router.Pick(address, nil); !ok {
				b.Fatal("no backend")
			}
		}
	})
	return row{what: what, value: float64(result.NsPerOp()) / 1000, budget: 1, unit: " us",
		measured: fmt.Sprintf("%d allocations", result.AllocsPerOp())}
}

// churnRow measures how long lookups take at worst while agents join and leave.
// What the machine's own pauses add is measured beside it, without them.
func churnRow(t *table, router *backend.Router[*idleBackend], agents []*idleBackend, members []backend.Member) {
	var calm, busy []float64
	for range rounds {
		calm = append(calm, slowest(router).Seconds()*1000)
		stop := churning(router, agents, members, 1000)
		busy = append(busy, slowest(router).Seconds()*1000)
		stop()
	}
	t.add(row{what: "slowest lookup during 1,000 joins/leaves a second", value: median(busy), budget: 5, unit: " ms",
		measured: fmt.Sprintf("of two seconds of lookups; without joins %.2f ms", median(calm))})
}

// slowest looks up for two seconds and returns the time of the slowest.
func slowest(router *backend.Router[*idleBackend]) (worst time.Duration) {
	for began, now := time.Now(), time.Now(); now.Sub(began) < 2*time.Second; {
		router.Pick("10.31.97.5:10250", nil)
		after := time.Now()
		worst, now = max(worst, after.Sub(now)), after
	}
	return worst
}

// churning makes agents leave and join again, so many of both a second, until stop
// is called.
func churning(router *backend.Router[*idleBackend], agents []*idleBackend, members []backend.Member, perSecond int) (stop func()) {
	const ticks = 100 // a second
	end := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(time.Second / ticks)
		defer tick.Stop()
		for i := 0; ; {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			for range perSecond / ticks / 2 {
				router.Leave(agents[i])
				router.Join(agents[i], members[i])
				i = (i + 1) % len(agents)
			}
		}
	})
	return func() {
		close(end)
		running.Wait()
	}
}
