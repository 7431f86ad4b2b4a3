package routing

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/culvert-proxy/culvert/rig/process"
)

// TestRollingReplacement replaces three agents, one after the other, by SIGTERM and
// a new process, under load: no dial fails, no tunnel is lost, and transfers on the
// leaving agents go on and end in order before their time to drain is over.
func TestRollingReplacement(t *testing.T) {
	for _, mode := range []string{"grpc", "http-connect"} {
		t.Run(mode, func(t *testing.T) { rollingReplacement(t, mode) })
	}
}

func rollingReplacement(t *testing.T, mode string) {
	w := newWorld(t, mode)
	d := connectDialer(w)
	if mode == "grpc" {
		d = grpcDialer(t, w)
	}
	// The time to drain is one that this test would never wait for.
	args := []string{"--lame-duck=500ms", "--drain-timeout=" + (10 * hang).String()}
	for i := 1; i <= agents; i++ {
		w.start(i, w.prefixes(i, shared), args...)
	}
	l := w.startLoad(d, shared, uncovered)
	l.more(100)
	for i := 1; i <= agents; i++ {
		old := w.agents[i]
		transfers := w.beginTransfers(d, i)
		old.Signal(syscall.SIGTERM)
		process.Eventually(t, hang, "the server knows that the agent leaves", func() bool { return w.server.Metric(draining) == 1 })
		w.start(i, w.prefixes(i, shared), args...)
		l.more(40)
		transfers.finish()
		if code := old.Exit(hang); code != 0 {
			t.Errorf("agent %d ended with status %d", i, code)
		}
		if strings.Contains(old.Log(), "--drain-timeout") && strings.Contains(old.Log(), "cutting") {
			t.Errorf("agent %d cut tunnels", i)
		}
		l.more(40)
	}
	visits := l.end()
	for _, v := range visits {
		if err := v.inOrder(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d dials", len(visits))
	for strategy, keys := range map[string]float64{"default": agents, "destCIDR": agents + 1} {
		series := fmt.Sprintf("konnectivity_network_proxy_server_ready_backends{proxy_strategy=%q}", strategy)
		process.Eventually(t, hang, series, func() bool { return w.server.Metric(series) == keys })
	}
}

// transfers are long tunnels through one agent.
type transfers struct {
	t     testing.TB
	conns []*transfer
}

// transfer sends random bytes to an echo, and takes what comes back.
type transfer struct {
	conn     net.Conn
	reader   *bufio.Reader
	rand     *rand.ChaCha8
	sent     hash.Hash
	received hash.Hash
}

// beginTransfers opens a few tunnels to an agent's own subnet and moves the first
// part of their bytes.
func (w *world) beginTransfers(d dialer, i int) *transfers {
	w.t.Helper()
	all := &transfers{t: w.t}
	for n := range 4 {
		ctx, cancel := context.WithTimeout(w.t.Context(), hang)
		conn, err := d(ctx, w.address(i, 10+n))
		cancel()
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { conn.Close() })
		tr := &transfer{conn: conn, reader: bufio.NewReader(conn), rand: rand.NewChaCha8([32]byte{byte(i), byte(n)}), sent: sha256.New(), received: sha256.New()}
		all.conns = append(all.conns, tr)
	}
	all.each(func(tr *transfer) error {
		if _, err := tr.reader.ReadString('\n'); err != nil {
			return err
		}
		return tr.move(1 << 20)
	})
	return all
}

// finish moves the rest and ends the tunnels in order.
func (t *transfers) finish() {
	t.t.Helper()
	t.each(func(tr *transfer) error {
		if err := tr.move(4 << 20); err != nil {
			return err
		}
		if half, ok := tr.conn.(interface{ CloseWrite() error }); ok {
			if err := half.CloseWrite(); err != nil {
				return err
			}
		}
		if n, err := io.Copy(io.Discard, tr.reader); n > 0 || err != nil {
			return fmt.Errorf("after the last byte: %d more, %w", n, err)
		}
		if !bytes.Equal(tr.sent.Sum(nil), tr.received.Sum(nil)) {
			return fmt.Errorf("what came back is not what was sent")
		}
		return tr.conn.Close()
	})
}

func (t *transfers) each(f func(tr *transfer) error) {
	t.t.Helper()
	var running sync.WaitGroup
	for _, tr := range t.conns {
		tr.conn.SetDeadline(time.Now().Add(hang))
		running.Go(func() {
			if err := f(tr); err != nil {
				t.t.Error(fmt.Errorf("a long transfer: %w", err))
			}
		})
	}
	running.Wait()
}

// move sends n bytes and takes as many back, at the same time.
func (tr *transfer) move(n int64) error {
	sent := make(chan error, 1)
	go func() {
		_, err := io.CopyN(io.MultiWriter(tr.conn, tr.sent), tr.rand, n)
		sent <- err
	}()
	_, err := io.CopyN(tr.received, tr.reader, n)
	if err != nil {
		tr.conn.Close()
		<-sent
		return err
	}
	return <-sent
}
