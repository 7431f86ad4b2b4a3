package suite

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// endpoint is what tunnels lead to. Each connection to talk begins with a line
// that says what is wanted:
//
//	echo       gives back what it gets
//	take N     reads N bytes and answers with their SHA-256
//	give N     writes N bytes of stream
//	count      reads to the end and answers with how much it was
//	slow N     reads N bytes, slowly at first, and the end
//	reset      hangs up with a reset
//	hold       reads nothing more until letGo
//
// It closes a connection when the other side has.
type endpoint struct {
	talk    string // address of those
	banner  string // address of connections on which the endpoint speaks first
	refused string // an address where nobody listens
	open    atomic.Int64
	over    chan struct{} // closed when the test ends
	hold    chan struct{} // closed by letGo
	once    sync.Once
	slow    chan string // what came on connections to slow: the SHA-256
}

func newEndpoint(t *testing.T) *endpoint {
	t.Helper()
	e := &endpoint{over: make(chan struct{}), hold: make(chan struct{}), slow: make(chan string, 10)}
	var wait sync.WaitGroup
	listen := func(serve func(net.Conn)) (net.Listener, string) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		wait.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				e.open.Add(1)
				wait.Go(func() {
					defer e.open.Add(-1)
					defer c.Close()
					serve(c)
				})
			}
		})
		return l, l.Addr().String()
	}
	talk, address := listen(e.serve)
	e.talk = address
	banner, address := listen(e.greet)
	e.banner = address
	nobody, address := listen(func(net.Conn) {})
	e.refused = address
	nobody.Close()
	t.Cleanup(func() {
		close(e.over)
		talk.Close()
		banner.Close()
		wait.Wait()
	})
	return e
}

func (e *endpoint) serve(c net.Conn) {
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	if err != nil {
		return
	}
	word, number, _ := strings.Cut(strings.TrimSpace(line), " ")
	var n int64
	fmt.Sscan(number, &n)
	switch word {
	case "echo":
		io.Copy(c, r)
	case "take":
		h := sha256.New()
		if got, _ := io.CopyN(h, r, n); got == n {
			fmt.Fprintf(c, "%x\n", h.Sum(nil))
		}
		io.Copy(io.Discard, r)
	case "give":
		io.CopyN(c, stream(), n)
		io.Copy(io.Discard, r)
	case "count":
		n, _ := io.Copy(io.Discard, r)
		fmt.Fprint(c, n)
	case "slow":
		e.slow <- slowly(r, n)
	case "reset":
		hangUp(c)
	case "hold":
		select {
		case <-e.hold:
		case <-e.over:
		}
		io.Copy(io.Discard, r)
	}
}

// letGo makes held connections read on.
func (e *endpoint) letGo() { e.once.Do(func() { close(e.hold) }) }

// Sizes of the banner: so many pieces of so many bytes, each of its own letter.
const (
	bannerPieces = 5
	bannerPiece  = 100
)

// bannerText is what the endpoint says first.
func bannerText() string {
	var b strings.Builder
	for i := range bannerPieces {
		b.WriteString(strings.Repeat(string(rune('a'+i)), bannerPiece))
	}
	return b.String()
}

// greet speaks first, in several pieces with a little time between them, so that
// a client that loses the first can be seen to have a gap.
func (e *endpoint) greet(c net.Conn) {
	text := bannerText()
	pause := time.NewTicker(2 * time.Millisecond)
	defer pause.Stop()
	for i := range bannerPieces {
		if _, err := io.WriteString(c, text[i*bannerPiece:(i+1)*bannerPiece]); err != nil {
			return
		}
		select {
		case <-pause.C:
		case <-e.over:
		}
	}
	io.Copy(io.Discard, c)
}

// stream is bytes that nobody would guess, the same at each call.
func stream() io.Reader { return rand.NewChaCha8([32]byte{'c', 'u', 'l', 'v', 'e', 'r', 't'}) }

// sumOf is the SHA-256 of the next n bytes of r.
func sumOf(r io.Reader, n int64) (string, error) {
	h := sha256.New()
	_, err := io.CopyN(h, r, n)
	return fmt.Sprintf("%x", h.Sum(nil)), err
}

// sum is the SHA-256 of the first n bytes of stream.
func sum(n int64) string {
	text, _ := sumOf(stream(), n)
	return text
}
