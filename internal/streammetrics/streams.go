package streammetrics

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Segment is a stretch of the way with a direction, as the server sees it.
type Segment string

// The segments. An agent sends from_agent and receives to_agent.
const (
	FromClient Segment = "from_client"
	ToClient   Segment = "to_client"
	FromAgent  Segment = "from_agent"
	ToAgent    Segment = "to_agent"
)

const (
	// noPacket is the packet_type of an error without a packet.
	noPacket = "Unknown"
	// maxUnknownTypes bounds the labels that peers can make up by sending packet
	// types that nobody knows; those beyond share otherType.
	maxUnknownTypes = 32
	otherType       = "other"
)

// Streams holds the two metrics of one process. Safe for concurrent use.
type Streams struct {
	// Fixed after construction.
	packets *prometheus.CounterVec
	errors  *prometheus.CounterVec

	mu sync.Mutex
	// Guarded by mu.
	unknown map[wire.PacketType]struct{}
}

// New registers the metrics of a process on reg; prefix comes before their names.
func New(reg prometheus.Registerer, prefix string) *Streams {
	s := &Streams{
		packets: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "stream_packets_total",
			Help: "Packets on streams, by segment and packet type; counted before they are sent.",
		}, []string{"segment", "packet_type"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "stream_errors_total",
			Help: "Errors of streams other than their orderly end, by segment, gRPC code and the type of the packet that was sent.",
		}, []string{"segment", "code", "packet_type"}),
		unknown: map[wire.PacketType]struct{}{},
	}
	reg.MustRegister(s.packets, s.errors)
	return s
}

// Between returns the observer of streams that send on one segment and receive on
// another. All series that can be foreseen exist from then on.
func (s *Streams) Between(out, in Segment) *Observer {
	o := &Observer{streams: s, out: out, in: in}
	for _, t := range types() {
		i, _ := index(t)
		o.sent[i] = s.packets.WithLabelValues(string(out), t.String())
		o.received[i] = s.packets.WithLabelValues(string(in), t.String())
	}
	for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
		s.errors.WithLabelValues(string(in), c.String(), noPacket)
		for _, t := range sendable(out) {
			s.errors.WithLabelValues(string(out), c.String(), t.String())
		}
	}
	return o
}

// label is the packet_type of t.
func (s *Streams) label(t wire.PacketType) string {
	if _, known := index(t); known {
		return t.String()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, seen := s.unknown[t]; !seen {
		if len(s.unknown) >= maxUnknownTypes {
			return otherType
		}
		s.unknown[t] = struct{}{}
	}
	return t.String()
}

// Observer counts what happens on streams between two segments. Safe for
// concurrent use; counting a packet of a known type is one atomic addition.
type Observer struct {
	// Fixed after construction.
	streams        *Streams
	out, in        Segment
	sent, received [knownTypes]prometheus.Counter
}

// Sent counts a packet that is about to be sent.
func (o *Observer) Sent(t wire.PacketType) { o.count(o.out, &o.sent, t) }

// Received counts a packet that has arrived.
func (o *Observer) Received(t wire.PacketType) { o.count(o.in, &o.received, t) }

func (o *Observer) count(segment Segment, known *[knownTypes]prometheus.Counter, t wire.PacketType) {
	if i, ok := index(t); ok {
		known[i].Inc()
		return
	}
	o.streams.packets.WithLabelValues(string(segment), o.streams.label(t)).Inc()
}

// SendFailed counts a packet that could not be sent.
func (o *Observer) SendFailed(t wire.PacketType, err error) {
	if !errors.Is(err, io.EOF) {
		o.streams.errors.WithLabelValues(string(o.out), code(err).String(), o.streams.label(t)).Inc()
	}
}

// ReceiveFailed counts the end of a stream, unless it was an orderly one.
func (o *Observer) ReceiveFailed(err error) {
	if !errors.Is(err, io.EOF) {
		o.streams.errors.WithLabelValues(string(o.in), code(err).String(), noPacket).Inc()
	}
}

// code is the gRPC code of err, also where it comes from a context.
func code(err error) codes.Code {
	c := status.Code(err)
	if c == codes.Unknown && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return status.FromContextError(err).Code()
	}
	return c
}
