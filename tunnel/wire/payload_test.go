package wire

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"google.golang.org/grpc/mem"
)

// pattern is n bytes in which every place can be told from its neighbours.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i ^ i>>8*7)
	}
	return b
}

func TestPayloadOfDropsEmptyBuffers(t *testing.T) {
	pool := newPool(t)
	p := PayloadOf(mem.BufferSlice{pool.buffer(nil), pool.buffer([]byte("ab")), pool.buffer(nil), pool.buffer([]byte("c"))})
	if len(p.bufs) != 2 || string(p.Bytes()) != "abc" {
		t.Errorf("%d buffers, %q", len(p.bufs), p.Bytes())
	}
	p.Free()
	none := PayloadOf(mem.BufferSlice{pool.buffer(nil)})
	if none.Len() != 0 || none.bufs != nil {
		t.Errorf("not the zero value: %+v", none)
	}
	none.Free()
}

func TestPayloadReaders(t *testing.T) {
	pool := newPool(t)
	want := pattern(100)
	for name, p := range map[string]Payload{
		"bytes":   PayloadBytes(want),
		"copy":    CopyPayload(want),
		"buffers": PayloadOf(pool.split(want, 10, 1, 80)),
	} {
		if p.Len() != 100 || !bytes.Equal(p.Bytes(), want) {
			t.Errorf("%s: Bytes: %x", name, p.Bytes())
		}
		if got := bytes.Join(p.AppendTo([][]byte{{0xff}}), nil); !bytes.Equal(got[1:], want) || got[0] != 0xff {
			t.Errorf("%s: AppendTo: %x", name, got)
		}
		for _, n := range []int{0, 1, 10, 11, 50, 100, 200} {
			dst := make([]byte, n)
			m := min(n, 100)
			if got := p.CopyTo(dst); got != m || !bytes.Equal(dst[:m], want[:m]) {
				t.Errorf("%s: CopyTo %d bytes: %d, %x", name, n, got, dst)
			}
		}
		p.Free()
	}
	var zero Payload
	if zero.Len() != 0 || zero.Bytes() != nil || zero.CopyTo(make([]byte, 1)) != 0 || zero.AppendTo(nil) != nil || len(zero.Buffers()) != 0 {
		t.Error("the zero value is not empty")
	}
	zero.Free()
}

func TestCopyPayloadIsItsOwn(t *testing.T) {
	b := pattern(3000)
	p := CopyPayload(b)
	b[5] ^= 1
	if bytes.Equal(p.Bytes(), b) {
		t.Error("it changed with the original")
	}
	p.Free()
}

// TestSplitEverywhere cuts a payload of three buffers at every place, uses the
// parts in both orders, and checks that nothing is shared that must not be.
func TestSplitEverywhere(t *testing.T) {
	pool := newPool(t)
	want := pattern(30)
	for n := -1; n <= 31; n++ {
		for _, headFirst := range []bool{true, false} {
			tail := PayloadOf(pool.split(want, 10, 5))
			head := tail.Split(n)
			cut := min(max(n, 0), 30)
			if head.Len() != cut || tail.Len() != 30-cut {
				t.Fatalf("split at %d: %d and %d bytes", n, head.Len(), tail.Len())
			}
			parts := []*Payload{&head, &tail}
			datas := [][]byte{want[:cut], want[cut:]}
			if !headFirst {
				parts[0], parts[1] = parts[1], parts[0]
				datas[0], datas[1] = datas[1], datas[0]
			}
			for i, p := range parts {
				if !bytes.Equal(p.Bytes(), datas[i]) {
					t.Fatalf("split at %d: part %d is %x, want %x", n, i, p.Bytes(), datas[i])
				}
				bufs := p.Buffers() // takes the place of Free
				if !bytes.Equal(bufs.Materialize(), datas[i]) {
					t.Fatalf("split at %d: buffers of part %d are %x", n, i, bufs.Materialize())
				}
				bufs.Free()
			}
		}
	}
}

// TestSplitLeavesReferencesAlone: what Marshal was given before stays whole
// when its payload is cut afterwards.
func TestSplitLeavesReferencesAlone(t *testing.T) {
	pool := newPool(t)
	want := pattern(5000)
	p := Packet{Type: Data, ConnectionID: 1, Payload: PayloadOf(pool.split(want, 3000))}
	sent, err := Marshal(&p)
	if err != nil {
		t.Fatal(err)
	}
	before := sent.Materialize()
	head := p.Payload.Split(1500)
	head.Free()
	p.Payload.Free()
	if !bytes.Equal(sent.Materialize(), before) {
		t.Error("the encoded packet changed")
	}
	sent.Free()
}

func TestMergePayloads(t *testing.T) {
	pool := newPool(t)
	var want []byte
	p := Payload{}
	for i := range 3000 {
		next := PayloadOf(mem.BufferSlice{pool.buffer([]byte{byte(i)})})
		want = append(want, byte(i))
		merged, ok := p.Merge(next)
		if !ok {
			t.Fatalf("byte %d was not merged", i)
		}
		p = merged
	}
	if !bytes.Equal(p.Bytes(), want) || len(p.bufs) != 1 {
		t.Errorf("%d bytes in %d buffers", p.Len(), len(p.bufs))
	}
	large := PayloadBytes(pattern(mergeSize - 3000 + 1))
	if _, ok := p.Merge(large); ok {
		t.Error("merged more than mergeSize")
	}
	p.Free()
}

// TestMergeDoesNotTouchOthers: the bytes behind a payload belong to somebody
// else unless Merge itself made the room.
func TestMergeDoesNotTouchOthers(t *testing.T) {
	memory := []byte("abcdef")
	p := PayloadBytes(memory[:3])
	merged, ok := p.Merge(PayloadBytes([]byte("XYZ")))
	if !ok || string(merged.Bytes()) != "abcXYZ" || string(memory) != "abcdef" {
		t.Errorf("merged %q, memory %q", merged.Bytes(), memory)
	}
	head := merged.Split(2) // of a merged payload only the end may grow
	grown, ok := head.Merge(PayloadBytes([]byte("!")))
	if !ok || string(grown.Bytes()) != "ab!" || string(merged.Bytes()) != "cXYZ" {
		t.Errorf("head %q, tail %q", grown.Bytes(), merged.Bytes())
	}
	longer, ok := merged.Merge(PayloadBytes([]byte("?")))
	if !ok || string(longer.Bytes()) != "cXYZ?" || string(grown.Bytes()) != "ab!" {
		t.Errorf("head %q, tail %q", grown.Bytes(), longer.Bytes())
	}
}

// TestPayloadModel does random things to payloads and to plain bytes.
func TestPayloadModel(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		pool := newPool(t)
		var ps []Payload
		var want [][]byte
		for range 60 {
			switch op := rnd.IntN(6); {
			case op < 2 || len(ps) == 0:
				data := pattern(rnd.IntN(3000))
				ps = append(ps, PayloadOf(pool.split(data, rnd.IntN(2000), rnd.IntN(2000))))
				want = append(want, data)
			case op == 2:
				i, n := rnd.IntN(len(ps)), rnd.IntN(3200)
				head := ps[i].Split(n)
				n = min(n, len(want[i]))
				ps, want = append(ps, head), append(want, want[i][:n:n])
				want[i] = want[i][n:]
			case op == 3 && len(ps) > 1:
				i, last := rnd.IntN(len(ps)-1), len(ps)-1
				if merged, ok := ps[i].Merge(ps[last]); ok {
					ps[i], want[i] = merged, append(append([]byte{}, want[i]...), want[last]...)
					ps, want = ps[:last], want[:last]
				}
			case op == 4:
				i, last := rnd.IntN(len(ps)), len(ps)-1
				ps[i].Free()
				ps[i], want[i] = ps[last], want[last]
				ps, want = ps[:last], want[:last]
			default:
				i := rnd.IntN(len(ps))
				ps[i] = PayloadOf(ps[i].Buffers())
			}
			for i := range ps {
				if ps[i].Len() != len(want[i]) || !bytes.Equal(ps[i].Bytes(), want[i]) {
					t.Fatalf("seed %d: payload %d differs", seed, i)
				}
			}
		}
		for _, p := range ps {
			p.Free()
		}
		pool.check(t)
	}
}
