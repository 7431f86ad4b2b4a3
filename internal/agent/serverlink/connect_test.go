package serverlink

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"crypto/tls"

	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// TestHello: what the two sides say of each other.
func TestHello(t *testing.T) {
	inBubble(t, func(c *Config) { c.Token = func() (string, error) { return " secret\n", nil } }, func(t *testing.T, b *bench) {
		l, peer := b.connect(newServer())
		want := link.AgentHello{AgentID: "agent-1", Identifiers: "host=h", Extensions: wire.AllExtensions, Instance: "instance-1", Slot: "0"}
		got := peer.Agent
		if auth := got.Authorization; len(auth) != 1 || auth[0] != "Bearer secret" {
			t.Errorf("authorization %q", auth)
		}
		got.Authorization = nil
		if got.AgentID != want.AgentID || got.Identifiers != want.Identifiers || got.Extensions != want.Extensions || got.Instance != want.Instance || got.Slot != want.Slot {
			t.Errorf("agent said %+v, want %+v", got, want)
		}
		if l.ServerID() != "s1" || l.ServerCount() != 2 || l.Extensions() != wire.AllExtensions || l.Target() != b.target() {
			t.Errorf("link %q %d %v", l.ServerID(), l.ServerCount(), l.Extensions())
		}
		synctest.Wait()
		peer.ExpectNothing() // no READY before the link is kept
		l.Drop()
		if err := peer.ExpectEnd(); status.Code(err) != codes.Canceled {
			t.Errorf("a dropped link ended with %v", err)
		}
	})
}

// TestOldAgent: with the kill switch nothing of ours is said.
func TestOldAgent(t *testing.T) {
	inBubble(t, func(c *Config) { c.Extensions = 0 }, func(t *testing.T, b *bench) {
		l, peer := b.connect(newServer())
		if a := peer.Agent; a.Extensions != 0 || a.Instance != "" || a.Slot != "" {
			t.Errorf("agent said %+v", a)
		}
		if l.Extensions() != 0 || l.window != oldWindow {
			t.Errorf("extensions %v, window %d", l.Extensions(), l.window)
		}
		l.Drop()
	})
}

// TestToken is read for each attempt; a failure is one of the attempt.
func TestToken(t *testing.T) {
	tokens := []string{"one", "", "two"}
	i := -1
	change := func(c *Config) {
		c.Token = func() (string, error) {
			if i++; tokens[i] == "" {
				return "", errTest
			}
			return tokens[i], nil
		}
	}
	inBubble(t, change, func(t *testing.T, b *bench) {
		l, peer := b.connect(newServer())
		l.Drop()
		if peer.Agent.Authorization[0] != "Bearer one" {
			t.Errorf("authorization %q", peer.Agent.Authorization)
		}
		if _, err := b.conn.Connect(t.Context(), b.target()); !errors.Is(err, errTest) {
			t.Errorf("connected without a token: %v", err)
		}
		l, peer = b.connect(newServer())
		l.Drop()
		if peer.Agent.Authorization[0] != "Bearer two" {
			t.Errorf("authorization %q", peer.Agent.Authorization)
		}
	})
}

// TestIdentifiers are asked for in each attempt; a failure is one of the attempt.
func TestIdentifiers(t *testing.T) {
	given := []string{"host=a", "", "host=b"}
	i := -1
	change := func(c *Config) {
		c.Identifiers = func(context.Context) (string, error) {
			if i++; given[i] == "" {
				return "", errTest
			}
			return given[i], nil
		}
	}
	inBubble(t, change, func(t *testing.T, b *bench) {
		for _, want := range given {
			if want == "" {
				if _, err := b.conn.Connect(t.Context(), b.target()); !errors.Is(err, errTest) {
					t.Errorf("connected without identifiers: %v", err)
				}
				continue
			}
			l, peer := b.connect(newServer())
			l.Drop()
			if peer.Agent.Identifiers != want {
				t.Errorf("presented %q, want %q", peer.Agent.Identifiers, want)
			}
		}
	})
}

// TestSilentServer: in each stage silence costs the limit of that stage.
func TestSilentServer(t *testing.T) {
	noTLS := func(*Config) {}
	withTLS := func(c *Config) { c.Credentials = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}) }
	cases := map[string]struct {
		change func(*Config)
		act    func(b *bench)
		stage  string
	}{
		"TCP":     {noTLS, func(b *bench) { b.net.Shape("", "server:1", tunneltest.Shape{Stall: true}) }, stageConnect},
		"TLS":     {withTLS, func(b *bench) { b.lis.SetMode(tunneltest.Silent) }, stageTLS},
		"HTTP/2":  {noTLS, func(b *bench) { b.lis.SetMode(tunneltest.Silent) }, stageStream},
		"headers": {noTLS, func(*bench) {}, stageHeaders},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, tc.change, func(t *testing.T, b *bench) {
				tc.act(b)
				began := time.Now()
				_, err := b.conn.Connect(t.Context(), b.target())
				var stage *StageError
				if !errors.As(err, &stage) || stage.Stage != tc.stage || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error %v, want one about the %s", err, tc.stage)
				}
				if took := time.Since(began); took != 10*time.Second {
					t.Errorf("took %v", took)
				}
				synctest.Wait()
				if n := b.net.Open(); n > 1 { // the server's side has not noticed yet where nothing arrives
					t.Errorf("%d connections left", n)
				}
				b.net.Cut("", "")
			})
		})
	}
}

// TestConnectFailures say what is wrong, not what gRPC makes of it.
func TestConnectFailures(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, b *bench) {
			b.lis.SetMode(tunneltest.Refusing)
			began := time.Now()
			_, err := b.conn.Connect(t.Context(), b.target())
			if err == nil || !strings.HasSuffix(err.Error(), "connection refused") || strings.Contains(err.Error(), "rpc error") {
				t.Errorf("error %v", err)
			}
			if took := time.Since(began); took != 0 {
				t.Errorf("took %v", took)
			}
		})
	})
	t.Run("rejected", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, b *bench) {
			result := b.start(t.Context())
			b.server.AcceptSilently().End(status.Error(codes.Unknown, "who are you"))
			if r := <-result; r.err == nil || !strings.Contains(r.err.Error(), "who are you") {
				t.Errorf("error %v", r.err)
			}
		})
	})
	t.Run("ended without a word", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, b *bench) {
			result := b.start(t.Context())
			b.server.AcceptSilently().End(nil)
			if r := <-result; r.err == nil || !strings.Contains(r.err.Error(), "without headers") {
				t.Errorf("error %v", r.err)
			}
		})
	})
	for name, md := range map[string]metadata.MD{
		"no server ID":    {wire.HeaderServerCount: {"1"}},
		"no count":        {wire.HeaderServerID: {"s"}},
		"two IDs":         {wire.HeaderServerID: {"s", "t"}, wire.HeaderServerCount: {"1"}},
		"count no number": {wire.HeaderServerID: {"s"}, wire.HeaderServerCount: {"many"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, b *bench) {
				result := b.start(t.Context())
				b.server.AcceptSilently().SendHeaders(md)
				if r := <-result; !errors.Is(r.err, link.ErrHeader) {
					t.Errorf("error %v", r.err)
				}
				synctest.Wait()
				if n := b.net.Open(); n != 0 {
					t.Errorf("%d connections left", n)
				}
			})
		})
	}
}

// TestConnectCanceled leaves nothing behind.
func TestConnectCanceled(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		ctx, cancel := context.WithCancel(t.Context())
		result := b.start(ctx)
		peer := b.server.AcceptSilently()
		cancel()
		if r := <-result; r.err == nil {
			t.Error("connected")
		}
		if err := peer.ExpectEnd(); err == nil {
			t.Error("the stream lives")
		}
		synctest.Wait()
		if n := b.net.Open(); n != 0 {
			t.Errorf("%d connections left", n)
		}
	})
}

// TestWindows: chosen by what was behind the address last; only a new server
// with small windows is worth a second connection.
func TestWindows(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		step := func(hello link.ServerHello, want int32, attempts int) {
			t.Helper()
			result := b.start(t.Context())
			for range attempts {
				b.server.AcceptAgent(hello)
			}
			r := <-result
			if r.err != nil {
				t.Fatal(r.err)
			}
			if r.link.window != want || r.link.Extensions() != hello.Extensions {
				t.Errorf("window %d, want %d", r.link.window, want)
			}
			r.link.Drop()
			synctest.Wait()
			if b.server.Waiting() != 0 {
				t.Errorf("more than %d attempts", attempts)
			}
		}
		step(newServer(), newWindow, 1)
		step(oldServer(), newWindow, 1) // not known before
		step(oldServer(), oldWindow, 1)
		step(newServer(), newWindow, 2) // it was replaced
		step(newServer(), newWindow, 1)
	})
}
