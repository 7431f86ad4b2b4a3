package behaviour

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"time"
)

// source is an endless stream of bytes that depends on seed only; cheap enough
// to be no part of what is tested.
func source(seed uint64) io.Reader {
	var key [16]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // the key has 16 bytes
	}
	return cipher.StreamReader{S: cipher.NewCTR(block, make([]byte, aes.BlockSize)), R: zeros{}}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// bytesOf is the beginning of a source.
func bytesOf(seed uint64, n int) []byte {
	b := make([]byte, n)
	source(seed).Read(b)
	return b
}

// digest is what arrived somewhere.
type digest struct {
	n   int64
	sum [sha256.Size]byte
	err error // what ended it; nil is EOF
}

// expected is the digest of the first n bytes of a source.
func expected(seed uint64, n int64) digest {
	d := newDigester()
	io.CopyN(d, source(seed), n)
	return d.end(nil)
}

type digester struct {
	hash hash.Hash
	n    int64
}

func newDigester() *digester { return &digester{hash: sha256.New()} }

// Write implements io.Writer.
func (d *digester) Write(b []byte) (int, error) {
	d.n += int64(len(b))
	return d.hash.Write(b)
}

func (d *digester) end(err error) digest {
	out := digest{n: d.n, err: err}
	d.hash.Sum(out.sum[:0])
	return out
}

// chunk is what one read or write of a bulk transfer takes.
const chunk = 64 << 10

// take reads r to its end.
func take(r io.Reader) digest {
	d := newDigester()
	_, err := io.CopyBuffer(d, struct{ io.Reader }{r}, make([]byte, chunk))
	return d.end(err)
}

// takeSlowly reads r to its end: 1 MiB/s for a while, then freely.
func takeSlowly(r io.Reader, slow time.Duration) digest {
	d := newDigester()
	tick := time.NewTicker(time.Second / 16)
	defer tick.Stop()
	for end := time.Now().Add(slow); time.Now().Before(end); <-tick.C {
		if _, err := io.CopyN(d, r, chunk); err == io.EOF {
			return d.end(nil)
		} else if err != nil {
			return d.end(err)
		}
	}
	_, err := io.CopyBuffer(d, struct{ io.Reader }{r}, make([]byte, chunk))
	return d.end(err)
}

// give writes the first n bytes of a source.
func give(w io.Writer, seed uint64, n int64) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{w}, io.LimitReader(source(seed), n), make([]byte, chunk))
	return err
}

// expect reads exactly want.
func expect(r io.Reader, want []byte) error {
	got := make([]byte, len(want))
	n, err := io.ReadFull(r, got)
	switch {
	case err != nil:
		return fmt.Errorf("read %d of %d bytes: %w", n, len(want), err)
	case !bytes.Equal(got, want):
		return fmt.Errorf("read other bytes than were sent: %.60q instead of %.60q", got, want)
	}
	return nil
}

// expectEOF reads the orderly end.
func expectEOF(r io.Reader) error {
	n, err := io.Copy(io.Discard, r)
	if err != nil {
		return fmt.Errorf("the end is no orderly one: %w", err)
	}
	if n > 0 {
		return fmt.Errorf("%d bytes that nobody sent", n)
	}
	return nil
}
