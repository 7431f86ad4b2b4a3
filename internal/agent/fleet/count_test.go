package fleet

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/culvert-proxy/culvert/internal/agent/serverlink"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// TestTooHighCount: against new servers attempts end with fast sync, against old
// ones there is at most one per cap. What tells of a further server finds it.
func TestTooHighCount(t *testing.T) {
	for _, ext := range []wire.Extensions{newServer, 0} {
		inWorld(t, Config{}, func(t *testing.T, w *world) {
			w.serve(3, ext, "a", "b")
			pass(6 * time.Minute)
			w.want("a", "b")
			w.tried()
			pass(24 * time.Hour)
			most := 24 * 360
			if ext != 0 {
				most = 0
			}
			if n := w.tried(); n > most {
				t.Errorf("extensions %v: %d attempts in a day", ext, n)
			}
			w.serve(4, ext, "a", "b", "c", "d")
			if ext != 0 {
				w.link("a").says().CountChanged(4)
			}
			pass(30 * time.Second)
			w.want("a", "b", "c", "d")
		})
	}
}

// TestServerIsBackAfterAnHour: a server that was down for an hour is found again, although
// nobody but the load balancer knows that it is back.
func TestServerIsBackAfterAnHour(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *world) {
		w.serve(3, newServer, "a", "b", "c")
		pass(time.Minute)
		w.want("a", "b", "c")
		w.serve(3, newServer, "a", "b")
		w.link("c").end <- errors.New("down")
		pass(time.Hour)
		w.want("a", "b")
		w.serve(3, newServer, "c")
		pass(2 * time.Minute)
		w.want("a", "b", "c")
	})
}

// TestOneServerBecomesFourLive is the history of TestOneServerBecomesFour with a
// running fleet: from the change on attempts come every interval, whether they
// meet the known server or fail.
func TestOneServerBecomesFourLive(t *testing.T) {
	for _, ext := range []wire.Extensions{newServer, 0} {
		inWorld(t, Config{SyncForever: ext == 0}, func(t *testing.T, w *world) {
			pass(time.Hour) // the way to the first server was long
			w.serve(1, ext, "a")
			pass(time.Hour)
			w.want("a")
			w.mu.Lock()
			n := 0
			w.answer = func(serverlink.Target) (*fakeLink, error) {
				if n++; n%2 == 0 {
					return nil, errRefused
				}
				return newFakeLink("a", 4, ext), nil
			}
			w.mu.Unlock()
			if ext != 0 {
				w.link("a").says().CountChanged(4)
			} else {
				pass(time.Second) // the duplicate that SyncForever meets says it
			}
			w.tried()
			pass(100 * time.Second)
			if n := w.tried(); n < 99 || n > 101 {
				t.Errorf("%d attempts in 100 s", n)
			}
			w.serve(4, ext, "a", "b", "c", "d")
			pass(10 * time.Second)
			w.want("a", "b", "c", "d")
			if got := w.seen.get("known"); got != 4 {
				t.Errorf("%d servers in the metrics", got)
			}
		})
	}
}

// TestCountIsLogged: whoever says another number, one line tells who that was,
// and the number before and after. The number said is the one in the metrics.
func TestCountIsLogged(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	log := funcr.New(func(_, line string) {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(line, "another number") {
			lines = append(lines, line[max(0, strings.Index(line, `"serverID"`)):])
		}
	}, funcr.Options{})
	inWorld(t, Config{Logger: log}, func(t *testing.T, w *world) {
		w.serve(2, newServer, "a")
		pass(10 * time.Second)
		w.serve(5, newServer, "a") // the duplicate's answer
		pass(2 * time.Second)
		w.link("a").says().CountChanged(1)
		pass(time.Second)
		if n := w.seen.get("known"); n != 1 {
			t.Errorf("%d servers in the metrics", n)
		}
	})
	want := []string{
		`"serverID"="a" "before"=1 "now"=2`,
		`"serverID"="a" "before"=2 "now"=5`,
		`"serverID"="a" "before"=5 "now"=1`,
	}
	if !slices.Equal(lines, want) {
		t.Errorf("lines %q, want %q", lines, want)
	}
}
