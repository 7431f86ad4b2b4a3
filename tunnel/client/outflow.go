package client

import (
	"sync/atomic"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// outflow tells what has become of the data that was given to gRPC. It is the
// pool to which gRPC gives a chunk's buffer back, which it does when the last
// byte of it was written to the network. Safe for concurrent use.
type outflow struct {
	inside  atomic.Int64 // bytes that gRPC has not written yet, messages' overhead with them
	lastOut atomic.Int64 // when it has last done so, in nanoseconds of the Unix epoch
}

var _ mem.BufferPool = (*outflow)(nil)

// overhead is what a message costs beside its payload, at most, in bytes.
const overhead = 64

// payload makes a payload of x, which is to be given to gRPC now.
func (o *outflow) payload(x chunk) wire.Payload {
	o.inside.Add(int64(len(*x)) + overhead)
	return wire.PayloadOf(mem.BufferSlice{mem.NewBuffer(x, o)})
}

// Get is for the interface only.
func (o *outflow) Get(n int) *[]byte { return mem.DefaultBufferPool().Get(n) }

// Put takes a chunk's buffer back.
func (o *outflow) Put(x *[]byte) {
	o.inside.Add(-int64(len(*x)) - overhead)
	o.moved()
	mem.DefaultBufferPool().Put(x)
}

// moved notes that there is progress.
func (o *outflow) moved() { o.lastOut.Store(time.Now().UnixNano()) }

// idleFor is how long there was no progress.
func (o *outflow) idleFor() time.Duration {
	return time.Duration(time.Now().UnixNano() - o.lastOut.Load())
}
