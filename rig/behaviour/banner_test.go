package behaviour

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
)

// banner is what an endpoint says first: its length and seed, then that many
// bytes. Lengths go from a line to more than one packet.
func banner(i int) []byte {
	length := 24 + (i*i*7)%5000
	if i%100 == 0 {
		length = 80 << 10
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(length))
	b = binary.BigEndian.AppendUint32(b, uint32(i))
	return append(b, bytesOf(uint64(i), length)...)
}

func readBanner(r io.Reader) (int, error) {
	var head [8]byte
	if n, err := io.ReadFull(r, head[:]); err != nil {
		return 0, fmt.Errorf("%d bytes of the banner: %w", n, err)
	}
	i := int(binary.BigEndian.Uint32(head[4:]))
	if want := binary.BigEndian.Uint32(banner(i)); want != binary.BigEndian.Uint32(head[:]) {
		return 0, fmt.Errorf("a banner that begins with %x", head)
	}
	return i, expect(r, banner(i)[8:])
}

// TestBehaviour01Banner: an endpoint that speaks first. Every banner arrives
// whole, and behind the answer to the dial: CONNECT's first bytes are the 200
// line, which over TLS comes alone.
func TestBehaviour01Banner(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		s := newStage(t, k, options{})
		var spoken atomic.Int64
		e := newEndpoint(t, func(_ *endpoint, c *net.TCPConn) {
			if _, err := c.Write(banner(int(spoken.Add(1)))); err == nil {
				io.Copy(io.Discard, c)
			}
		})
		const dials = 3000
		var joined atomic.Int64
		heard := make([]atomic.Bool, dials+1)
		many(t, dials, 60, func(int) error {
			c, err := s.dial(e.addr)
			if err != nil {
				return err
			}
			defer c.Close()
			if conn, ok := c.(*connectConn); ok && conn.first != len(established) {
				if k == connectTLS || conn.first < len(established) {
					return fmt.Errorf("the first read brought %d bytes instead of %d", conn.first, len(established))
				}
				joined.Add(1)
			}
			i, err := readBanner(c)
			if err != nil {
				return err
			}
			if i > dials || heard[i].Swap(true) {
				return fmt.Errorf("banner %d came twice", i)
			}
			return nil
		})
		if k == connectUDS {
			// The server waits a few milliseconds for the client to take the line.
			t.Logf("%d of %d reads of the 200 line brought bytes of the endpoint too", joined.Load(), dials)
		}
	})
}
