package flow_test

import (
	"bytes"
	"testing"

	"github.com/culvert-proxy/culvert/tunnel/flow"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// TestCreditInSingleBytesIsNeverRefused: a peer may use its credit byte by byte.
// All of it fits, and costs few items.
func TestCreditInSingleBytesIsNeverRefused(t *testing.T) {
	for _, size := range []int{1, 7, 100, 255, 257, 2049, 4095} {
		const window = 256 << 10
		q := flow.New[wire.Payload](window)
		var sent []byte
		for n := 0; len(sent)+size <= window; n++ {
			b := bytes.Repeat([]byte{byte(n)}, size)
			if err := q.Push(wire.CopyPayload(b)); err != nil {
				t.Fatalf("%d bytes at a time: %v after %d bytes", size, err, len(sent))
			}
			sent = append(sent, b...)
		}
		q.CloseWhenEmpty(nil)
		var got []byte
		items := 0
		for {
			p, err := q.Pop()
			if err != nil {
				break
			}
			got = append(got, p.Bytes()...)
			p.Free()
			items++
		}
		if !bytes.Equal(got, sent) {
			t.Errorf("%d bytes at a time: other bytes arrived", size)
		}
		if items > 2*window/4096+1 {
			t.Errorf("%d bytes at a time: %d items", size, items)
		}
	}
}
