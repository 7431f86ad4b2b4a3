package fleet

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/internal/agent/serverlink"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

const newServer = wire.AllExtensions

// TestScaling: servers 1, 3, 5, 2, 0, 3 behind a load balancer, counted by what
// they say; the agent follows without a restart, and probes no one in between.
func TestScaling(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *world) {
		all := []string{"a", "b", "c", "d", "e"}
		steps := []int{1, 3, 5, 2, 0, 3}
		for _, n := range steps {
			w.serve(n, newServer, all[:n]...)
			for i, id := range all { // those that go away end their links, the others push the count
				switch l := w.link(id); {
				case l == nil:
				case i >= n:
					l.end <- errors.New("server stopped")
				default:
					l.says().CountChanged(n)
				}
			}
			w.tried()
			pass(20 * time.Second)
			w.want(all[:n]...)
			if n := w.tried(); n > 60 {
				t.Errorf("%d attempts to find %d servers", n, n)
			}
			if n == 0 {
				continue
			}
			pass(time.Minute) // until the answers of those that are gone are forgotten
			w.tried()
			pass(time.Hour)
			if got := w.tried(); got != 0 {
				t.Errorf("%d attempts in an hour with all %d links", got, n)
			}
		}
	})
}

// TestLostLinkComesBack at once, and others are not touched.
func TestLostLinkComesBack(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *world) {
		w.serve(2, newServer, "a", "b")
		pass(time.Minute)
		w.want("a", "b")
		b := w.link("b")
		a := w.link("a")
		a.end <- errors.New("lost")
		pass(time.Second)
		w.want("a", "b")
		if w.link("b") != b || w.link("a") == a {
			t.Error("the wrong link was replaced")
		}
	})
}

// TestDuplicateIsDropped and tells the count before it goes.
func TestDuplicateIsDropped(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *world) {
		w.serve(2, newServer, "a")
		pass(10 * time.Second)
		w.want("a")
		w.serve(5, newServer, "a")
		pass(2 * time.Second)
		if n := w.fleet.Status().Servers; n != 5 {
			t.Errorf("%d servers, the duplicate said 5", n)
		}
		synctest.Wait()
		dropped := 0
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, l := range w.links {
			if l.dropped {
				dropped++
			}
		}
		if dropped == 0 || dropped != len(w.links)-1 || w.seen.get("duplicate") != dropped {
			t.Errorf("%d of %d links dropped, %d counted", dropped, len(w.links), w.seen.get("duplicate"))
		}
	})
}

// TestSilentLinkIsReplaced; one that only may be silent is not.
func TestSilentLinkIsReplaced(t *testing.T) {
	inWorld(t, Config{SyncForever: true}, func(t *testing.T, w *world) {
		w.serve(1, newServer, "a")
		pass(5 * time.Second)
		first := w.link("a")
		first.silence()
		pass(9 * time.Second)
		if w.link("a") != first {
			t.Fatal("replaced before 15 s of silence")
		}
		pass(3 * time.Second)
		w.want("a")
		if second := w.link("a"); second == first || !first.closed {
			t.Error("the silent link is kept")
		}
	})
	inWorld(t, Config{SyncForever: true}, func(t *testing.T, w *world) {
		w.serve(1, 0, "a")
		pass(5 * time.Second)
		first := w.link("a")
		first.silence()
		pass(time.Hour)
		if w.link("a") != first {
			t.Error("an old server's link was replaced: it has nothing to say when idle")
		}
	})
}

// TestServerDrains: its link lives on, another server is looked for, and the same
// server may come back beside it.
func TestServerDrains(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *world) {
		w.serve(1, newServer, "a")
		pass(time.Second)
		old := w.link("a")
		w.serve(1, newServer, "a", "b")
		old.says().Draining()
		pass(time.Second)
		w.want("a", "a")
		links := w.fleet.Status().Links
		if !links[0].Draining || links[1].Draining {
			t.Errorf("links %+v", links)
		}
		if old.closed {
			t.Error("the draining link was closed")
		}
		w.tried()
		old.end <- errors.New("server stopped")
		pass(time.Hour)
		w.want("a")
		if n := w.tried(); n != 0 {
			t.Errorf("%d attempts after the draining link was over", n)
		}
	})
}

// TestFailures: backoff, text for people, and no link.
func TestFailures(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *world) {
		pass(time.Minute)
		if n := w.tried(); n != 10 { // 0 1 2.5 4.75 8.1 13.2 20.8 30.8 40.8 50.8
			t.Errorf("%d attempts in a minute of failures", n)
		}
		s := w.fleet.Status()
		if w.fleet.Ready() || len(s.Failures) != 1 || s.Failures[0].Address != "lb:1" || s.Failures[0].Text != errRefused.Error() {
			t.Errorf("status %+v", s)
		}
		w.serve(1, newServer, "a")
		pass(11 * time.Second)
		if s := w.fleet.Status(); !w.fleet.Ready() || len(s.Failures) != 0 {
			t.Errorf("status %+v", s)
		}
	})
}

// TestAddresses: servers that are several DNS answers have their links one
// interval after the other.
func TestAddresses(t *testing.T) {
	inWorld(t, Config{SyncInterval: 200 * time.Millisecond}, func(t *testing.T, w *world) {
		w.mu.Lock()
		w.targets = nil
		for _, h := range []string{"a", "b", "c"} {
			w.targets = append(w.targets, serverlink.Target{Host: h, Address: h + ":1"})
		}
		w.answer = func(t serverlink.Target) (*fakeLink, error) { return newFakeLink(t.Host, 3, newServer), nil }
		w.mu.Unlock()
		pass(3 * time.Second) // the first attempt met the name that was there before
		w.want("a", "b", "c")
		for range 5 {
			w.tried()
			w.link("b").end <- errors.New("restarted")
			pass(400 * time.Millisecond)
			w.want("a", "b", "c")
			if n := w.tried(); n != 1 {
				t.Errorf("%d attempts", n)
			}
			pass(20 * time.Second)
		}
	})
}

// TestDrain: no new link, every server is told, dials are served for the
// lame-duck time, and it is over when the last tunnel is.
func TestDrain(t *testing.T) {
	inWorld(t, Config{LameDuck: 5 * time.Second}, func(t *testing.T, w *world) {
		w.serve(2, newServer, "a", "b")
		pass(5 * time.Second)
		finish := w.rooms.open()
		began := time.Now()
		done := make(chan error, 1)
		go func() { done <- w.fleet.Drain(t.Context()) }()
		synctest.Wait()
		if w.link("a").drained != 1 || w.link("b").drained != 1 || !w.fleet.Status().Leaving {
			t.Error("a server was not told")
		}
		w.tried()
		w.link("b").end <- errors.New("lost")
		pass(4 * time.Second)
		if !w.rooms.refusedAt().IsZero() {
			t.Error("dials are refused before the lame-duck time is over")
		}
		pass(6 * time.Second)
		if got := w.rooms.refusedAt().Sub(began); got != 5*time.Second {
			t.Errorf("dials are refused after %v", got)
		}
		w.want("a")
		if n := w.tried(); n != 0 {
			t.Errorf("%d attempts while leaving", n)
		}
		select {
		case err := <-done:
			t.Fatalf("gone with an open tunnel: %v", err)
		default:
		}
		finish()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestDrainBounds(t *testing.T) {
	t.Run("nothing open", func(t *testing.T) {
		inWorld(t, Config{LameDuck: 5 * time.Second}, func(t *testing.T, w *world) {
			w.serve(1, newServer, "a")
			pass(time.Second)
			began := time.Now()
			if err := w.fleet.Drain(t.Context()); err != nil || time.Since(began) != 5*time.Second {
				t.Errorf("gone after %v: %v", time.Since(began), err)
			}
		})
	})
	t.Run("no server", func(t *testing.T) {
		inWorld(t, Config{LameDuck: 5 * time.Second}, func(t *testing.T, w *world) {
			pass(time.Second)
			began := time.Now()
			if err := w.fleet.Drain(t.Context()); err != nil || time.Since(began) != 0 {
				t.Errorf("gone after %v: %v", time.Since(began), err)
			}
		})
	})
	t.Run("last server goes", func(t *testing.T) {
		inWorld(t, Config{LameDuck: time.Hour}, func(t *testing.T, w *world) {
			w.serve(1, newServer, "a")
			pass(time.Second)
			began := time.Now()
			time.AfterFunc(time.Minute, func() { w.links[0].end <- errors.New("lost") })
			if err := w.fleet.Drain(t.Context()); err != nil || time.Since(began) != time.Minute {
				t.Errorf("gone after %v: %v", time.Since(began), err)
			}
		})
	})
	t.Run("timeout", func(t *testing.T) {
		inWorld(t, Config{LameDuck: 5 * time.Second, DrainTimeout: time.Minute}, func(t *testing.T, w *world) {
			w.serve(1, newServer, "a")
			pass(time.Second)
			finish := w.rooms.open()
			began := time.Now()
			err := w.fleet.Drain(t.Context())
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
				t.Errorf("gone after %v: %v", time.Since(began), err)
			}
			finish()
		})
	})
}

// TestLinkThatComesTooLate: an attempt under way when the agent leaves gives no link.
func TestLinkThatComesTooLate(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *world) {
		release := make(chan struct{})
		w.fleet.deps.Connector = slowConnector{w, release}
		w.serve(1, newServer, "a")
		pass(15 * time.Second)
		done := make(chan error, 1)
		go func() { done <- w.fleet.Drain(t.Context()) }()
		synctest.Wait()
		close(release)
		<-done
		synctest.Wait()
		if w.fleet.Ready() || !w.links[0].dropped {
			t.Error("the link was kept")
		}
	})
}

type slowConnector struct {
	Connector
	release chan struct{}
}

func (c slowConnector) Connect(ctx context.Context, t serverlink.Target) (Link, error) {
	<-c.release
	return c.Connector.Connect(ctx, t)
}

// TestStatusOrder is steady.
func TestStatusOrder(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *world) {
		w.serve(3, newServer, "c", "a", "b")
		pass(10 * time.Second)
		if ids := w.ids(); !slices.IsSorted(ids) || len(ids) != 3 {
			t.Errorf("links %v", ids)
		}
		if w.seen.get("known") != 3 || w.seen.get("connected") != 3 || w.seen.get("kept") != 3 {
			t.Errorf("numbers %v", w.seen.numbers)
		}
	})
}
