package main

import (
	"bytes"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// through sends data over one delay line of p in fake time and returns when the
// first and the last byte arrived, counted from the first write.
func through(t *testing.T, p path, data []byte) (first, last time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		in, src := net.Pipe()
		dst, out := net.Pipe()
		go newDelayLine(p).run(dst, src)
		began := time.Now()
		go func() {
			in.Write(data)
			in.Close()
		}()
		var got bytes.Buffer
		chunk := make([]byte, 64<<10)
		for {
			n, err := out.Read(chunk)
			if n > 0 && first == 0 {
				first = time.Since(began)
			}
			if n > 0 {
				last = time.Since(began)
			}
			got.Write(chunk[:n])
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got.Bytes(), data) {
			t.Fatalf("%d bytes went in, %d other bytes came out", len(data), got.Len())
		}
	})
	return first, last
}

func TestForwarderKeepsRateAndDelay(t *testing.T) {
	p := path{bytesPerSecond: 1 << 20, roundTrip: 50 * time.Millisecond}
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<17) // 2 MiB: two seconds
	first, last := through(t, p, data)
	if first < 25*time.Millisecond || first > 60*time.Millisecond {
		t.Errorf("the first byte took %v, want half a round trip and one segment's time", first)
	}
	if want := 2*time.Second + 25*time.Millisecond; last < want-time.Millisecond || last > want+50*time.Millisecond {
		t.Errorf("the last byte took %v, want %v", last, want)
	}
}

// TestForwarderBuffersOneProduct: a receiver that stands still stops the sender
// after one bandwidth-delay product.
func TestForwarderBuffersOneProduct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := path{bytesPerSecond: 1 << 20, roundTrip: time.Second}
		in, src := net.Pipe()
		dst, out := net.Pipe()
		go newDelayLine(p).run(dst, src)
		sent := 0
		go func() {
			chunk := make([]byte, 16<<10)
			for {
				n, err := in.Write(chunk)
				sent += n
				if err != nil {
					return
				}
			}
		}()
		<-time.After(time.Minute) // fake: nothing moves any more
		synctest.Wait()
		// What is held, what run has read and not yet taken in, and what deliver holds.
		if limit := p.buffer() + 3*(16<<10); sent > limit {
			t.Errorf("%d bytes were taken in, want at most %d", sent, limit)
		}
		in.Close()
		out.Close()
	})
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		value, budget float64
		atLeast       bool
		want          string
	}{
		{0.9, 0.8, true, "within"}, {0.5, 0.8, true, "over, within twice"}, {0.3, 0.8, true, "BEYOND TWICE"},
		{1.2, 1.3, false, "within"}, {2, 1.3, false, "over, within twice"}, {3, 1.3, false, "BEYOND TWICE"},
	} {
		if got := (row{value: c.value, budget: c.budget, atLeast: c.atLeast}).verdict(); got != c.want {
			t.Errorf("%v against %v: %q, want %q", c.value, c.budget, got, c.want)
		}
	}
}

func TestQuantiles(t *testing.T) {
	s := samples{5, 1, 4, 2, 3}
	if s.quantile(0) != 1 || s.quantile(0.5) != 3 || s.quantile(1) != 5 {
		t.Errorf("quantiles are %v %v %v", s.quantile(0), s.quantile(0.5), s.quantile(1))
	}
	if (samples{}).quantile(0.5) != 0 {
		t.Error("the quantile of nothing is not 0")
	}
}
