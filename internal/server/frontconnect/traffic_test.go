package frontconnect

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/culvert-proxy/culvert/internal/server/relay"
)

// world is a frontend before the real relay, an agent and real endpoints.
type world struct {
	*front
	relay *relay.Relay
	agent *agent
}

func newWorld(t *testing.T, medium string) *world {
	t.Helper()
	w := &world{front: newFront(t, medium)}
	w.relay, w.agent = newRelay(t)
	w.front.Server.relay = relayOpener{w.relay}
	return w
}

// idle reports whether nothing is left of any client.
func (w *world) idle() bool {
	return w.Sessions() == 0 && w.relay.Tunnels() == 0 && w.relay.Pending() == 0 && len(w.agent.open()) == 0
}

func request(addr string) string {
	return "CONNECT " + addr + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
}

// tunnelTo connects through the frontend and takes the 200 line.
func (f *front) tunnelTo(t *testing.T, addr, early string) net.Conn {
	t.Helper()
	conn, err := f.dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(hangLimit))
	write(t, conn, request(addr)+early)
	if got := read(t, conn, len(successLine)); got != successLine {
		t.Fatalf("answer %q", got)
	}
	return conn
}

func TestEndpointSpeaksFirst(t *testing.T) {
	const banner = "220 ready when you are\r\n"
	eachLoop(t, func(t *testing.T, f *world) {
		addr := endpoint(t, func(c *net.TCPConn) { io.WriteString(c, banner) })
		each(20, 10, func() {
			conn, err := f.dial()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(hangLimit))
			write(t, conn, request(addr))
			if got, err := rest(conn); got != successLine+banner || err != nil {
				t.Errorf("client read %q, %v", got, err)
			}
		})
	})
}

// kube-apiserver's dialler reads the answer through a buffer and fails if that
// holds anything more.
func TestNothingIsReadWithTheAnswer(t *testing.T) {
	for _, m := range []string{"unix", "tls"} {
		t.Run(m, func(t *testing.T) {
			f := newWorld(t, m)
			addr := endpoint(t, func(c *net.TCPConn) { io.WriteString(c, "banner") })
			each(10, 10, func() {
				conn, err := f.dial()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(hangLimit))
				write(t, conn, request(addr))
				br := bufio.NewReader(conn)
				resp, err := http.ReadResponse(br, nil)
				if err != nil || resp.StatusCode != http.StatusOK || br.Buffered() > 0 {
					t.Errorf("answer %v, %v, with %d bytes behind it", resp, err, br.Buffered())
				}
			})
		})
	}
}

func TestBulkBothWaysIsWhole(t *testing.T) {
	eachLoop(t, func(t *testing.T, f *world) {
		addr := endpoint(t, func(c *net.TCPConn) { io.Copy(c, c) })
		each(4, 1, func() {
			const size = 4 << 20
			data := make([]byte, size)
			rnd := rand.NewChaCha8([32]byte{1})
			rnd.Read(data)
			conn := f.tunnelTo(t, addr, string(data[:1000]))
			go func() {
				conn.Write(data[1000:])
				conn.(halfCloser).CloseWrite()
			}()
			h := sha256.New()
			n, err := io.Copy(h, conn)
			if want := sha256.Sum256(data); n != size || err != nil || !bytes.Equal(h.Sum(nil), want[:]) {
				t.Errorf("%d bytes came back, %v", n, err)
			}
		})
	})
}

// A client that writes and closes at once: a slow endpoint gets everything.
func TestWriteThenCloseAtOnce(t *testing.T) {
	eachLoop(t, func(t *testing.T, f *world) {
		const size = 4 << 20
		got := make(chan int64, 1)
		addr := endpoint(t, func(c *net.TCPConn) {
			b := make([]byte, 16<<10)
			var n int64
			for {
				m, err := c.Read(b)
				n += int64(m)
				if err != nil {
					got <- n
					return
				}
			}
		})
		conn := f.tunnelTo(t, addr, "")
		write(t, conn, string(make([]byte, size)))
		conn.Close()
		select {
		case n := <-got:
			if n != size {
				t.Errorf("the endpoint got %d bytes of %d", n, size)
			}
		case <-time.After(hangLimit):
			t.Error("the endpoint never saw the end")
		}
	})
}

// Clients that leave within 0 to 2 ms of their CONNECT leave nothing behind, with
// an endpoint that never closes by itself.
func TestHangUpStorm(t *testing.T) {
	for _, m := range []string{"unix", "tls"} {
		t.Run(m, func(t *testing.T) {
			f := newWorld(t, m)
			var mu sync.Mutex
			open := 0
			note := func(d int) int {
				mu.Lock()
				defer mu.Unlock()
				open += d
				return open
			}
			addr := endpoint(t, func(c *net.TCPConn) {
				note(+1)
				io.Copy(io.Discard, c)
				note(-1)
			})
			f.tunnelTo(t, addr, "").Close() // from here on the server has all files of its own
			eventually(t, "the first session has ended", func() bool { return f.idle() && note(0) == 0 })
			before := openFiles(t)
			total := 3000
			if m == "tls" {
				total = 150
			}
			each(30, total/30, func() {
				conn, err := f.dial()
				if err != nil {
					t.Error(err)
					return
				}
				conn.Write([]byte(request(addr)))
				<-time.After(time.Duration(rand.IntN(2000)) * time.Microsecond)
				conn.Close()
			})
			defer func() {
				if t.Failed() {
					t.Logf("%d sessions, %d tunnels, %d endpoint connections, %d files of %d", f.Sessions(), f.relay.Tunnels()+f.relay.Pending(), note(0), openFiles(t), before)
				}
			}()
			eventually(t, "no session, tunnel or endpoint connection is left", func() bool {
				return f.idle() && note(0) == 0 && openFiles(t) <= before
			})
		})
	}
}

// Stop lets tunnels go on, refuses new clients, and Wait ends with the last.
func TestStopKeepsTunnels(t *testing.T) {
	eachLoop(t, func(t *testing.T, f *world) {
		addr := endpoint(t, func(c *net.TCPConn) { io.Copy(c, c) })
		conn := f.tunnelTo(t, addr, "")
		f.Stop()
		if c, err := f.dial(); err == nil {
			c.Close()
			t.Error("a new client was accepted")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := f.Wait(ctx); err == nil {
			t.Error("Wait did not wait")
		}
		write(t, conn, "still here")
		if got := read(t, conn, 10); got != "still here" {
			t.Errorf("echo %q", got)
		}
		waited := make(chan error, 1)
		go func() { waited <- f.Wait(t.Context()) }()
		conn.Close()
		if err := <-waited; err != nil {
			t.Error(err)
		}
	})
}

func eachLoop(t *testing.T, test func(t *testing.T, f *world)) {
	for _, m := range media() {
		t.Run(m, func(t *testing.T) {
			f := newWorld(t, m)
			test(t, f)
		})
	}
}

// each calls f rounds times in each of n goroutines.
func each(n, rounds int, f func()) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for range rounds {
				f()
			}
		})
	}
	wg.Wait()
}

func openFiles(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}
