package tunneltest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// advance lets a bubble's time pass.
func advance(d time.Duration) { <-time.After(d) }

// connect returns both sides of a connection from "client" to "server".
func connect(t *testing.T, n *Network) (client, server *Conn) {
	t.Helper()
	l := n.Listen("server")
	defer l.Close()
	c, err := n.Dial(t.Context(), "server")
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return c.(*Conn), s.(*Conn)
}

// bubble runs f in fake time with a connection.
func bubble(t *testing.T, f func(t *testing.T, n *Network, client, server *Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork(0)
		c, s := connect(t, n)
		f(t, n, c, s)
		c.Reset()
		s.Reset()
		if n.Open() != 0 {
			t.Errorf("%d connections left", n.Open())
		}
	})
}

func mustWrite(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

func mustRead(t *testing.T, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v, want %q", got, err, want)
	}
}

// readFails checks what Read returns.
func readFails(t *testing.T, c net.Conn, want error) {
	t.Helper()
	if n, err := c.Read(make([]byte, 10)); n != 0 || !errors.Is(err, want) {
		t.Errorf("read %d, %v, want %v", n, err, want)
	}
}

func TestBothWaysAndHalfClose(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network, client, server *Conn) {
		if a := server.RemoteAddr(); a != client.LocalAddr() || a.Network() != "mem" || client.RemoteAddr().String() != "server" {
			t.Errorf("addresses %v and %v", a, client.RemoteAddr())
		}
		mustWrite(t, client, "ping")
		mustWrite(t, server, "pong")
		if err := client.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("write after CloseWrite: %v", err)
		}
		mustRead(t, server, "ping")
		readFails(t, server, io.EOF)
		mustWrite(t, server, "more")
		mustRead(t, client, "pongmore")
		_ = server.Close()
		readFails(t, client, io.EOF)
		readFails(t, server, net.ErrClosed)
		if err := server.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("second close: %v", err)
		}
	})
}

func TestBufferIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network, client, server *Conn) {
		sent := make([]byte, 3*DefaultBuffer)
		_, _ = rand.Read(sent)
		_ = client.SetWriteDeadline(time.Now().Add(time.Second))
		k, err := client.Write(sent)
		if k != DefaultBuffer || !errors.Is(err, os.ErrDeadlineExceeded) || server.Unread() != k {
			t.Fatalf("wrote %d, %v", k, err)
		}
		_ = client.SetWriteDeadline(time.Time{})
		go func() {
			_, _ = client.Write(sent[k:])
			_ = client.CloseWrite()
		}()
		got, err := io.ReadAll(server)
		if err != nil || !bytes.Equal(got, sent) {
			t.Errorf("read %d bytes, %v", len(got), err)
		}
	})
}

func TestDeadlines(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network, client, server *Conn) {
		began := time.Now()
		_ = client.SetReadDeadline(began.Add(time.Minute))
		time.AfterFunc(time.Second, func() { _ = client.SetReadDeadline(began.Add(5 * time.Second)) }) // moved while waiting
		readFails(t, client, os.ErrDeadlineExceeded)
		if d := time.Since(began); d != 5*time.Second {
			t.Errorf("after %v", d)
		}
		mustWrite(t, server, "x")
		readFails(t, client, os.ErrDeadlineExceeded) // also with something to read
		var timeout net.Error
		if _, err := client.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("%v is no timeout", err)
		}
		_ = client.SetDeadline(time.Time{})
		mustRead(t, client, "x")
	})
}

func TestResets(t *testing.T) {
	for name, reset := range map[string]func(c *Conn, n *Network){
		"Reset":             func(c *Conn, n *Network) { c.Reset() },
		"Close with linger": func(c *Conn, n *Network) { _ = c.SetLinger(0); _ = c.Close() },
		"Close with unread": func(c *Conn, n *Network) { _ = c.Close() },
		"Cut":               func(c *Conn, n *Network) { n.Cut("server", "client") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *Network, client, server *Conn) {
				mustWrite(t, client, "never read")
				mustWrite(t, server, "destroyed")
				reset(client, n)
				readFails(t, server, syscall.ECONNRESET)
				if _, err := server.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("write: %v", err)
				}
				if name == "Cut" {
					readFails(t, client, syscall.ECONNRESET)
				} else {
					readFails(t, client, net.ErrClosed)
				}
			})
		})
	}
}

func TestWriteToAClosedSideResets(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network, client, server *Conn) {
		mustWrite(t, client, "last words")
		_ = client.Close()
		mustRead(t, server, "last words")
		mustWrite(t, server, "into the void") // accepted, like TCP does
		readFails(t, server, syscall.ECONNRESET)
	})
}

func TestBlockedCallsEnd(t *testing.T) {
	for name, end := range map[string]struct {
		by   func(client, server *Conn)
		want error
	}{
		"own close":   {func(client, server *Conn) { _ = client.Close() }, net.ErrClosed},
		"other reset": {func(client, server *Conn) { server.Reset() }, syscall.ECONNRESET},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *Network, client, server *Conn) {
				errs := make(chan error, 2)
				go func() {
					_, err := client.Read(make([]byte, 1))
					errs <- err
				}()
				go func() {
					_, err := client.Write(make([]byte, 2*DefaultBuffer))
					errs <- err
				}()
				synctest.Wait()
				end.by(client, server)
				for range 2 {
					if err := <-errs; !errors.Is(err, end.want) {
						t.Errorf("got %v", err)
					}
				}
			})
		})
	}
}

func TestStall(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network, client, server *Conn) {
		n.Shape("client", "server", Shape{Stall: true})
		mustWrite(t, client, "late")
		mustWrite(t, server, "other way")
		mustRead(t, client, "other way")
		_ = server.SetReadDeadline(time.Now().Add(time.Hour))
		readFails(t, server, os.ErrDeadlineExceeded)
		_ = server.SetReadDeadline(time.Time{})
		_ = client.Close()
		time.AfterFunc(time.Minute, func() { n.Shape("client", "", Shape{}) }) // not exact enough
		time.AfterFunc(time.Hour, func() { n.Shape("client", "server", Shape{}) })
		began := time.Now()
		mustRead(t, server, "late")
		if d := time.Since(began); d != time.Hour {
			t.Errorf("arrived after %v", d)
		}
		readFails(t, server, io.EOF)
	})
}

func TestStalledBytesReachAClosedSocket(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network, client, server *Conn) {
		client.Shape(Shape{Stall: true})
		mustWrite(t, client, "on its way")
		_ = server.Close() // nothing unread has arrived: in order
		readFails(t, client, io.EOF)
		client.Shape(Shape{})
		readFails(t, client, syscall.ECONNRESET)
	})
}

func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork(1 << 20)
		n.Shape("client", "server", Shape{Rate: 1000, Latency: 50 * time.Millisecond})
		began := time.Now()
		client, server := connect(t, n)
		if d := time.Since(began); d != 50*time.Millisecond {
			t.Errorf("connected after %v", d)
		}
		began = time.Now()
		_, _ = client.Write(make([]byte, 3000))
		_ = client.Close()
		first := time.Duration(0)
		total := 0
		for buf := make([]byte, 1000); ; {
			k, err := server.Read(buf)
			total += k
			if err != nil {
				break
			}
			if first == 0 {
				first = time.Since(began)
			}
		}
		if d := time.Since(began); d != 3050*time.Millisecond || total != 3000 || first > 100*time.Millisecond {
			t.Errorf("%d bytes after %v, the first after %v", total, d, first)
		}
		_ = server.Close()
	})
}

func TestDialFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork(0)
		var dns *net.DNSError
		if _, err := n.Dial(t.Context(), "nowhere"); !errors.As(err, &dns) || !dns.IsNotFound {
			t.Errorf("unknown name: %v", err)
		}
		l := n.Listen("server")
		l.SetMode(Refusing)
		if _, err := n.Dial(t.Context(), "server"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("refusing: %v", err)
		}
		l.SetMode(Accepting)
		n.Shape("", "server", Shape{Stall: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.Dial(ctx, "server"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("black hole: %v", err)
		}
		n.Shape("", "server", Shape{})
		_ = l.Close()
		if _, err := n.Dial(t.Context(), "server"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("closed: %v", err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept: %v", err)
		}
	})
}

func TestSilentListenerAndRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork(0)
		l := n.Listen("server")
		accepted := make(chan net.Conn, 10)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				accepted <- c
			}
		}()
		l.SetMode(Silent)
		c, err := n.Dialer("agent:9")(t.Context(), "server")
		if err != nil {
			t.Fatal(err)
		}
		mustWrite(t, c, "hello")
		synctest.Wait()
		if len(accepted) != 0 {
			t.Error("a silent listener accepted")
		}
		l.SetMode(Accepting)
		s := <-accepted
		mustRead(t, s, "hello")

		l.Restart(3 * time.Second)
		readFails(t, c, syscall.ECONNRESET)
		readFails(t, s, syscall.ECONNRESET)
		if _, err := n.Dial(t.Context(), "server"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("during the restart: %v", err)
		}
		advance(3 * time.Second)
		synctest.Wait()
		c, err = n.Dial(t.Context(), "server")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // accepted
		l.SetMode(Silent)
		waiting, err := n.Dial(t.Context(), "server")
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		readFails(t, waiting, syscall.ECONNRESET)
		mustWrite(t, c, "still up")
		mustRead(t, <-accepted, "still up")
	})
}

func TestWaitResetDoesNotRead(t *testing.T) {
	bubble(t, func(t *testing.T, _ *Network, client, server *Conn) {
		mustWrite(t, client, "unread")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if server.WaitReset(ctx) {
			t.Error("a reset before there was one")
		}
		time.AfterFunc(time.Second, client.Reset)
		if began := time.Now(); !server.WaitReset(t.Context()) || time.Since(began) != time.Second {
			t.Errorf("no reset, or not in time: after %v", time.Since(began))
		}
		server.Close()
		if server.WaitReset(t.Context()) {
			t.Error("a side that is closed was told of a reset")
		}
	})
}
