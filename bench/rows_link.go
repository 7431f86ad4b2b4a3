package main

import (
	"context"
	"fmt"
	"net"
	"time"
)

// overLink starts a server and an agent whose link passes through a forwarder.
func (s *stage) overLink(ctx context.Context, megabits int, roundTrip time.Duration) (*culvert, error) {
	return s.startCulvert(ctx, "http-connect", func(target string) (string, error) {
		address, err := free(ctx)
		if err != nil {
			return "", err
		}
		p, err := s.keep(startSelf(ctx, "forwarder", "-listen", address, "-target", target,
			"-megabits", fmt.Sprint(megabits), "-round-trip", roundTrip.String()))
		if err != nil {
			return "", err
		}
		return address, awaitListener(ctx, p, "tcp", address)
	})
}

// slowLinkRow measures a neighbour of one bulk tunnel on 100 Mbit/s, 50 ms.
func (s *stage) slowLinkRow(ctx context.Context, t *table) {
	const what = "neighbour of a bulk tunnel on 100 Mbit/s, 50 ms, p50"
	c, err := s.overLink(ctx, 100, 50*time.Millisecond)
	if err != nil {
		t.fail(what, err)
		return
	}
	via := s.viaConnect(c)
	alone, err := echoes(ctx, via, 40, 128)
	if err != nil {
		t.fail(what, err)
		return
	}
	for _, up := range []bool{false, true} {
		beside, err := besideBulk(ctx, via, up)
		if err != nil {
			t.fail(what, err)
			return
		}
		a, b := alone.quantile(0.5), beside.quantile(0.5)
		t.add(row{what: what + ", bulk " + direction(up), value: float64(b) / float64(a), budget: 1.5, unit: "x",
			measured: fmt.Sprintf("%v, undisturbed %v", b.Round(time.Millisecond/10), a.Round(time.Millisecond/10))})
	}
}

// besideBulk measures echoes while one other connection moves all it can.
func besideBulk(ctx context.Context, via dial, up bool) (samples, error) {
	conn, err := via(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	go pump(conn, up) // ends with the connection
	time.Sleep(3 * time.Second)
	return echoes(ctx, via, 60, 128)
}

func pump(conn net.Conn, up bool) {
	if up {
		sinkTo(conn, 1<<40) //nolint:errcheck // cut off on purpose
		return
	}
	sourceFrom(conn, 1<<40) //nolint:errcheck // cut off on purpose
}

// longLinkRow measures one bulk connection on 1 Gbit/s, 50 ms.
func (s *stage) longLinkRow(ctx context.Context, t *table) {
	const what = "bulk on 1 Gbit/s, 50 ms, 1 connection"
	c, err := s.overLink(ctx, 1000, 50*time.Millisecond)
	if err != nil {
		t.fail(what, err)
		return
	}
	via := s.viaConnect(c)
	const size = 1 << 30
	for _, up := range []bool{false, true} {
		took, err := bulk(ctx, via, 1, size, up)
		if err != nil {
			t.fail(what, err)
			return
		}
		got := size / took.Seconds()
		t.add(row{what: what + ", " + direction(up), value: got / 125e6, budget: 0.9, atLeast: true, unit: "x",
			measured: fmt.Sprintf("%.0f MB/s of 125", got/1e6)})
	}
}
