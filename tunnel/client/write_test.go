package client

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// pattern is n bytes that are not the same when shifted.
func pattern(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{}).Read(b)
	return b
}

func TestWritesArriveInOrder(t *testing.T) {
	variants(t, func(s *stage) {
		c, peer := s.connected()
		want := pattern(3 << 20)
		failed := make(chan error, 1)
		go func() {
			buf := make([]byte, 0, 1<<20)
			for rest, n := want, 1; len(rest) > 0; n = n*3 + 1 {
				k := min(n, len(rest), 700_000)
				buf = append(buf[:0], rest[:k]...)
				if n, err := c.Write(buf); err != nil || n != k {
					failed <- err
					return
				}
				clear(buf) // it is ours again
				rest = rest[k:]
			}
			failed <- nil
		}()
		got := 0
		for got < len(want) {
			k := peer.ExpectOn(wire.Data, connID)
			b := k.Payload.Bytes()
			if len(b) == 0 || len(b) > link.MaxData {
				s.Fatalf("a DATA of %d bytes", len(b))
			}
			if !bytes.Equal(b, want[got:got+len(b)]) {
				s.Fatalf("wrong bytes behind %d", got)
			}
			got += len(b)
		}
		if err := <-failed; err != nil {
			s.Fatal(err)
		}
	})
}

func TestConcurrentWritesDoNotMix(t *testing.T) {
	newServer(t, func(s *stage) {
		c, peer := s.connected()
		const writers, size = 8, 300_000
		var group sync.WaitGroup
		for i := range writers {
			group.Go(func() {
				if n, err := c.Write(bytes.Repeat([]byte{byte('a' + i)}, size)); n != size || err != nil {
					s.Errorf("wrote %d, %v", n, err)
				}
			})
		}
		var got []byte
		for len(got) < writers*size {
			k := peer.ExpectOn(wire.Data, connID)
			got = append(got, k.Payload.Bytes()...)
		}
		for ; len(got) > 0; got = got[size:] {
			if !bytes.Equal(got[:size], bytes.Repeat(got[:1], size)) {
				s.Fatal("two writes are mixed")
			}
		}
		group.Wait()
	})
}

// stuckWrite starts a Write that cannot finish, because the server does not read.
func (s *stage) stuckWrite(c *Conn, peer *tunneltest.ServerPeer, n int) <-chan result2 {
	s.Helper()
	peer.SetReading(false)
	done := make(chan result2, 1)
	go func() {
		n, err := c.Write(pattern(n))
		done <- result2{n, err}
	}()
	synctest.Wait()
	select {
	case r := <-done:
		s.Fatalf("the write is not stuck: %d, %v", r.n, r.err)
	default:
	}
	return done
}

type result2 struct {
	n   int
	err error
}

func TestWriteDeadline(t *testing.T) {
	variants(t, func(s *stage) {
		c, peer := s.connected()
		c.SetWriteDeadline(time.Now().Add(3 * time.Second))
		began := time.Now()
		r := <-s.stuckWrite(c, peer, 2<<20)
		if !errors.Is(r.err, os.ErrDeadlineExceeded) || time.Since(began) != 3*time.Second {
			s.Fatalf("%v after %v", r.err, time.Since(began))
		}
		if r.n == 0 || r.n >= 2<<20 {
			s.Errorf("accepted %d", r.n)
		}
		if n, err := c.Write([]byte("x")); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			s.Errorf("after the deadline: %d, %v", n, err)
		}
		// What was accepted is still delivered, and the connection lives on.
		c.SetWriteDeadline(time.Time{})
		peer.SetReading(true)
		peer.ExpectData(connID, pattern(2 << 20)[:r.n])
		if _, err := c.Write([]byte("more")); err != nil {
			s.Fatal(err)
		}
		peer.ExpectData(connID, []byte("more"))
	})
}

func TestDeadlineSetWhileAWriteIsStuck(t *testing.T) {
	variants(t, func(s *stage) {
		c, peer := s.connected()
		done := s.stuckWrite(c, peer, 2<<20)
		second := make(chan error, 1)
		go func() { // waits for its turn
			_, err := c.Write([]byte("x"))
			second <- err
		}()
		synctest.Wait()
		c.SetDeadline(time.Unix(1, 0))
		if r := <-done; !errors.Is(r.err, os.ErrDeadlineExceeded) {
			s.Errorf("got %v", r.err)
		}
		if err := <-second; !errors.Is(err, os.ErrDeadlineExceeded) {
			s.Errorf("got %v", err)
		}
	})
}

func TestCloseUnblocksAWrite(t *testing.T) {
	variants(t, func(s *stage) {
		c, peer := s.connected()
		done := s.stuckWrite(c, peer, 2<<20)
		c.Close()
		r := <-done
		if !errors.Is(r.err, net.ErrClosed) {
			s.Errorf("got %v", r.err)
		}
		peer.SetReading(true)
		peer.ExpectData(connID, pattern(2 << 20)[:r.n])
		peer.ExpectOn(wire.CloseRequest, connID)
	})
}

func TestPeerClosesWhileAWriteIsStuck(t *testing.T) {
	variants(t, func(s *stage) {
		c, peer := s.connected()
		done := s.stuckWrite(c, peer, 2<<20)
		peer.Send(wire.Packet{Type: wire.CloseResponse, ConnectionID: connID})
		if r := <-done; !errors.Is(r.err, syscall.EPIPE) {
			s.Errorf("got %v", r.err)
		}
		s.orderly(s.readAll(c, ""))
		<-c.Done() // the stream that cannot end in order is cancelled
		if err := c.CloseContext(s.Context()); !errors.Is(err, syscall.EPIPE) {
			s.Errorf("not everything was delivered, but: %v", err)
		}
	})
}

func TestCloseWrite(t *testing.T) {
	variants(t, func(s *stage) {
		c, peer := s.connected()
		if s.ext == 0 {
			if err := c.CloseWrite(); !errors.Is(err, errors.ErrUnsupported) {
				s.Errorf("got %v", err)
			}
			if _, err := c.Write([]byte("x")); err != nil {
				s.Errorf("something has changed: %v", err)
			}
			return
		}
		want := pattern(300_000)
		if _, err := c.Write(want); err != nil {
			s.Fatal(err)
		}
		if err := errors.Join(c.CloseWrite(), c.CloseWrite()); err != nil {
			s.Fatal(err)
		}
		if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			s.Errorf("got %v", err)
		}
		peer.ExpectData(connID, want)
		peer.ExpectOn(wire.HalfClose, connID)
		peer.Send(data("answer"), wire.Packet{Type: wire.CloseResponse, ConnectionID: connID})
		peer.End(nil)
		s.orderly(s.readAll(c, "answer"))
		synctest.Wait()
		peer.Skip() // nothing else was sent
		c.Close()
		if err := c.CloseWrite(); !errors.Is(err, net.ErrClosed) {
			s.Errorf("got %v", err)
		}
	})
}

func TestSmallWritesThatWaitArePutTogether(t *testing.T) {
	newServer(t, func(s *stage) {
		c, peer := s.connected()
		peer.SetReading(false)
		c.SetWriteDeadline(time.Now().Add(time.Second))
		n := 0
		for range 1 << 20 {
			if _, err := c.Write([]byte{byte(n)}); err != nil {
				break
			}
			n++
		}
		c.mu.Lock()
		items, bytes := len(c.sender.queue.ring.items)-c.sender.queue.ring.first, c.sender.queue.bytes
		c.mu.Unlock()
		if bytes != maxWritten || items > maxWritten/minChunk+1 {
			s.Errorf("%d items hold %d bytes", items, bytes)
		}
		peer.SetReading(true)
		for got := 0; got < n; {
			k := peer.ExpectOn(wire.Data, connID)
			for _, b := range k.Payload.Bytes() {
				if b != byte(got) {
					s.Fatalf("byte %d is %d", got, b)
				}
				got++
			}
		}
		synctest.Wait()
		if left := c.sender.outflow.inside.Load(); left != 0 {
			s.Errorf("%d bytes are still counted as inside gRPC", left)
		}
	})
}
