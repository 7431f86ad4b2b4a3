// Package streammetrics counts packets and errors of gRPC streams by segment, as
// both binaries have always shown them: stream_packets_total and
// stream_errors_total. COMPAT section 5.
package streammetrics
