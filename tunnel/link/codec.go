package link

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Codec lets gRPC carry *wire.Packet, and nothing else, without copying the
// payload. Give it to grpc.ForceServerCodecV2 or grpc.ForceCodecV2; do not
// register it. It is stateless.
type Codec struct{}

var _ encoding.CodecV2 = Codec{}

// Name is "proto", because that is what the bytes are.
func (Codec) Name() string { return "proto" }

// Marshal encodes v, a *wire.Packet. The result has its own references to the
// payload's buffers: v keeps its payload, whatever becomes of the result.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	p, ok := v.(*wire.Packet)
	if !ok {
		return nil, fmt.Errorf("link codec: cannot encode %T", v)
	}
	return wire.Marshal(p)
}

// Unmarshal decodes data into v, a *wire.Packet, overwriting it. A payload has
// its own references to data's buffers.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	p, ok := v.(*wire.Packet)
	if !ok {
		return fmt.Errorf("link codec: cannot decode into %T", v)
	}
	return wire.Unmarshal(data, p)
}
