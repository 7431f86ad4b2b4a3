package rig

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
)

// A stream is what one end of a tunnel sends: the sender's name, a bar, and then
// bytes that follow from the name alone. So whoever receives it can tell whose
// it is, and that no byte is missing, doubled, moved or from somebody else.

// blockSize is how many bytes come before they repeat. A prime, so that a block
// that is lost does not go unnoticed because buffers are powers of two.
const blockSize = 65521

const maxSender = 64 // bytes of a sender's name, the bar included

func header(sender string) []byte { return append([]byte(sender), '|') }

func block(sender string) []byte {
	b := make([]byte, blockSize)
	_, _ = rand.NewChaCha8(sha256.Sum256([]byte(sender))).Read(b) // never fails
	return b
}

// outgoing makes the bytes of a stream. Not safe for concurrent use.
type outgoing struct {
	head, block []byte
	sent        int64
}

func newOutgoing(sender string) *outgoing {
	return &outgoing{head: header(sender), block: block(sender)}
}

// next fills b.
func (o *outgoing) next(b []byte) {
	for len(b) > 0 {
		n := copy(b, at(o.head, o.block, o.sent))
		o.sent += int64(n)
		b = b[n:]
	}
}

// at is what comes from offset on, at least a byte and at most to the end of the
// block.
func at(head, block []byte, offset int64) []byte {
	if offset < int64(len(head)) {
		return head[offset:]
	}
	return block[(offset-int64(len(head)))%blockSize:]
}

// incoming checks a stream. Not safe for concurrent use.
type incoming struct {
	sender      string // "" until the bar has come
	head, block []byte
	got         int64
}

// take checks what came next.
func (i *incoming) take(b []byte) error {
	if i.sender == "" {
		begun := len(i.head)
		i.head = append(i.head, b[:min(len(b), maxSender)]...)
		bar := bytes.IndexByte(i.head, '|')
		switch {
		case bar < 0 && len(i.head) >= maxSender:
			return fmt.Errorf("the stream begins with %q, which is nobody's name", i.head)
		case bar < 0:
			i.got += int64(len(b))
			return nil
		}
		i.sender = string(i.head[:bar])
		i.head = i.head[:bar+1]
		i.block = block(i.sender)
		n := bar + 1 - begun
		i.got += int64(n)
		b = b[n:]
	}
	for len(b) > 0 {
		want := at(i.head, i.block, i.got)
		n := min(len(b), len(want))
		if !bytes.Equal(b[:n], want[:n]) {
			return fmt.Errorf("the stream of %s is wrong after %d bytes", i.sender, i.got)
		}
		i.got += int64(n)
		b = b[n:]
	}
	return nil
}

// String is "64MiB of c1".
func (i *incoming) String() string {
	switch {
	case i.got == 0:
		return "nothing"
	case i.sender == "":
		return formatSize(i.got)
	}
	return formatSize(i.got) + " of " + i.sender
}
