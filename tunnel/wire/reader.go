package wire

import (
	"errors"
	"io"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Causes of a malformed message, beside io.ErrUnexpectedEOF.
var (
	errVarint = errors.New("varint longer than 64 bits")
	errNumber = errors.New("field number out of range")
	errGroup  = errors.New("groups do not match")
	errDepth  = errors.New("groups nested too deeply")
	errType   = errors.New("reserved wire type")
)

// maxDepth bounds nested groups, which only a strange peer sends at all.
const maxDepth = 100

// reader walks over a message that lies in several buffers, split anywhere. It
// takes no references.
type reader struct {
	bufs mem.BufferSlice
	next int    // index of the buffer after cur
	cur  []byte // the current buffer
	at   int    // how far it is read; an index, because storing a slice costs more
	left int    // what is left of the message, or of the message inside it
}

func newReader(bufs mem.BufferSlice) reader {
	return reader{bufs: bufs, left: bufs.Len()}
}

// fill makes at point into cur. Call it only if left > 0.
func (r *reader) fill() {
	for r.at == len(r.cur) {
		r.cur, r.at = r.bufs[r.next].ReadOnlyData(), 0
		r.next++
	}
}

func (r *reader) varint() (uint64, error) {
	var v uint64
	for shift := 0; shift < 70; shift += 7 {
		if r.left == 0 {
			return 0, io.ErrUnexpectedEOF
		}
		r.fill()
		c := r.cur[r.at]
		r.at++
		r.left--
		if shift == 63 && c > 1 {
			break
		}
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v, nil
		}
	}
	return 0, errVarint
}

// tag reads what stands before each field.
func (r *reader) tag() (protowire.Number, protowire.Type, error) {
	num, typ, err := r.anyTag()
	if err == nil && num > protowire.MaxValidNumber {
		err = errNumber
	}
	return num, typ, err
}

// anyTag is tag inside a group that is skipped, where protobuf does not mind
// large numbers.
func (r *reader) anyTag() (protowire.Number, protowire.Type, error) {
	v, err := r.varint()
	if err != nil {
		return 0, 0, err
	}
	num, typ := protowire.DecodeTag(v)
	if num < protowire.MinValidNumber {
		return 0, 0, errNumber
	}
	return num, typ, nil
}

// length reads the length of a field and checks that so much is there.
func (r *reader) length() (int, error) {
	v, err := r.varint()
	if err != nil {
		return 0, err
	}
	if v > uint64(r.left) {
		return 0, io.ErrUnexpectedEOF
	}
	return int(v), nil
}

// skip passes over n bytes, n <= left.
func (r *reader) skip(n int) {
	for r.left -= n; n > 0; {
		r.fill()
		m := min(n, len(r.cur)-r.at)
		r.at += m
		n -= m
	}
}

// copy reads len(dst) bytes, len(dst) <= left.
func (r *reader) copy(dst []byte) {
	for r.left -= len(dst); len(dst) > 0; {
		r.fill()
		m := copy(dst, r.cur[r.at:])
		r.at += m
		dst = dst[m:]
	}
}

// text reads n bytes, n <= left, of which limit at most are kept.
func (r *reader) text(n, limit int) string {
	keep := make([]byte, min(n, limit+1)) // one more shows clean where a letter starts
	r.copy(keep)
	r.skip(n - len(keep))
	if string(keep) == "tcp" {
		return "tcp" // nearly every dial's protocol
	}
	return clean(string(keep), limit)
}

// skipField passes over the value of a field that is not known.
func (r *reader) skipField(num protowire.Number, typ protowire.Type) error {
	var open []protowire.Number // groups
	for {
		switch typ {
		case protowire.StartGroupType:
			if len(open) == maxDepth {
				return errDepth
			}
			open = append(open, num)
		case protowire.EndGroupType:
			if len(open) == 0 || open[len(open)-1] != num {
				return errGroup
			}
			open = open[:len(open)-1]
		default:
			if err := r.skipValue(typ); err != nil {
				return err
			}
		}
		if len(open) == 0 {
			return nil
		}
		var err error
		if num, typ, err = r.anyTag(); err != nil {
			return err
		}
	}
}

// skipValue passes over a value that is not a group.
func (r *reader) skipValue(typ protowire.Type) error {
	var n int
	switch typ {
	case protowire.VarintType:
		_, err := r.varint()
		return err
	case protowire.BytesType:
		var err error
		if n, err = r.length(); err != nil {
			return err
		}
	case protowire.Fixed32Type:
		n = 4
	case protowire.Fixed64Type:
		n = 8
	default:
		return errType
	}
	if n > r.left {
		return io.ErrUnexpectedEOF
	}
	r.skip(n)
	return nil
}
