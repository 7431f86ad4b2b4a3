package link

import "testing"

func TestBuffers(t *testing.T) {
	var p Buffers
	for n, want := range map[int]int{
		0: 256, 1: 256, 256: 256, 257: 4096, 4096: 4096, 4097: 16384, 16384: 16384, 16385: 32768,
		32768: 32768, 32769: 1 << 20, 1 << 20: 1 << 20, 1<<20 + 1: 1<<20 + 1,
	} {
		b := p.Get(n)
		if len(*b) != n || cap(*b) != want {
			t.Errorf("Get(%d): length %d, capacity %d, want %d", n, len(*b), cap(*b), want)
		}
		p.Put(b)
		if again := p.Get(n / 2); len(*again) != n/2 {
			t.Errorf("Get(%d) after Put: length %d", n/2, len(*again))
		}
	}
	odd := make([]byte, 300, 5000)
	p.Put(&odd) // must not come back as one of 4 KiB
	if b := p.Get(5000); cap(*b) != 16384 {
		t.Errorf("capacity %d", cap(*b))
	}
}
