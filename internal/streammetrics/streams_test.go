package streammetrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

func TestEveryKnownTypeHasAPlaceOfItsOwn(t *testing.T) {
	seen := map[int]wire.PacketType{}
	for _, typ := range types() {
		i, ok := index(typ)
		if other, twice := seen[i]; !ok || twice || i >= knownTypes {
			t.Errorf("%v has place %d, %v; so has %v", typ, i, ok, other)
		}
		seen[i] = typ
	}
	if len(seen) != knownTypes {
		t.Errorf("%d types, want %d", len(seen), knownTypes)
	}
	for _, typ := range []wire.PacketType{-1, wire.Drain + 1, wire.Credit - 1, wire.ServerCount + 1} {
		if _, ok := index(typ); ok {
			t.Errorf("%v is known", typ)
		}
		if typ.String() != fmt.Sprint(int(typ)) {
			t.Errorf("%d has the name %v: the list here misses it", typ, typ)
		}
	}
}

func TestCounts(t *testing.T) {
	s := New(prometheus.NewRegistry(), "x_")
	o := s.Between(ToAgent, FromAgent)
	o.Sent(wire.Data)
	o.Sent(wire.Data)
	o.Received(wire.DialResponse)
	o.Received(99)
	o.SendFailed(wire.Data, status.Error(codes.Unavailable, "gone"))
	o.SendFailed(wire.Data, io.EOF)
	o.ReceiveFailed(status.Error(codes.ResourceExhausted, "too large"))
	o.ReceiveFailed(fmt.Errorf("wrapped: %w", context.Canceled))
	o.ReceiveFailed(errors.New("plain"))
	o.ReceiveFailed(io.EOF)
	for labels, want := range map[[2]string]float64{
		{"to_agent", "DATA"}: 2, {"from_agent", "DIAL_RSP"}: 1, {"from_agent", "99"}: 1, {"from_agent", "DATA"}: 0, {"to_agent", "CREDIT"}: 0,
	} {
		if got := testutil.ToFloat64(s.packets.WithLabelValues(labels[0], labels[1])); got != want {
			t.Errorf("packets %v: %v, want %v", labels, got, want)
		}
	}
	total := 0.0
	for labels, want := range map[[3]string]float64{
		{"to_agent", "Unavailable", "DATA"}:            1,
		{"from_agent", "ResourceExhausted", "Unknown"}: 1,
		{"from_agent", "Canceled", "Unknown"}:          1,
		{"from_agent", "Unknown", "Unknown"}:           1,
	} {
		got := testutil.ToFloat64(s.errors.WithLabelValues(labels[0], labels[1], labels[2]))
		if got != want {
			t.Errorf("errors %v: %v, want %v", labels, got, want)
		}
		total += got
	}
	if total != 4 {
		t.Errorf("%v errors in all", total)
	}
}

func TestSeriesExistFromTheStart(t *testing.T) {
	s := New(prometheus.NewRegistry(), "x_")
	s.Between(ToAgent, FromAgent)
	if got := testutil.CollectAndCount(s.packets); got != 2*knownTypes {
		t.Errorf("%d series of packets, want %d", got, 2*knownTypes)
	}
	before := testutil.CollectAndCount(s.errors)
	if before != 16*(1+len(sendable(ToAgent))) {
		t.Errorf("%d series of errors", before)
	}
}

// A peer that makes types up cannot make series without end.
func TestUnknownTypesAreBounded(t *testing.T) {
	s := New(prometheus.NewRegistry(), "x_")
	o := s.Between(ToAgent, FromAgent)
	before := testutil.CollectAndCount(s.packets)
	for i := range 1000 {
		o.Received(wire.PacketType(1000 + i))
		o.SendFailed(wire.PacketType(5000+i), errors.New("x"))
	}
	if more := testutil.CollectAndCount(s.packets) - before; more != maxUnknownTypes/2+1 {
		t.Errorf("%d new series for 1000 unknown types", more)
	}
	if got := testutil.ToFloat64(s.packets.WithLabelValues("from_agent", otherType)); got != 1000-maxUnknownTypes/2 {
		t.Errorf("%v packets of other types", got)
	}
}

func TestCountingDoesNotAllocate(t *testing.T) {
	o := New(prometheus.NewRegistry(), "x_").Between(ToAgent, FromAgent)
	if n := testing.AllocsPerRun(100, func() { o.Sent(wire.Data); o.Received(wire.Credit) }); n != 0 {
		t.Errorf("%v allocations per packet", n)
	}
}
