package frontconnect

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/culvert-proxy/culvert/internal/server/relay"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// hangLimit is when a test gives up; nothing is measured with it.
const hangLimit = 60 * time.Second

// fakeRelay hands every tunnel that a session opens to the test.
type fakeRelay struct {
	opened chan *fakeTunnel
}

func (r *fakeRelay) newDialID() wire.DialID { return 7 }

func (r *fakeRelay) open(_ context.Context, req relay.Request, f relay.Frontend) tunnel {
	t := &fakeTunnel{req: req, f: f, answered: make(chan struct{}), events: make(chan string, 16), grew: make(chan struct{}, 1)}
	r.opened <- t
	return t
}

// fakeTunnel records what the session tells it; the test plays relay's part by
// calling the methods of f.
type fakeTunnel struct {
	req      relay.Request
	f        relay.Frontend
	answered chan struct{}
	events   chan string // CloseWrite, HangUp, Close and Abort as they come
	grew     chan struct{}

	mu    sync.Mutex
	up    bool
	err   error
	got   []byte
	full  error         // what Write returns, if not nil
	stall chan struct{} // Write waits for it, if not nil
}

func (t *fakeTunnel) WaitEstablished() error {
	<-t.answered
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

func (t *fakeTunnel) Established() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.up
}

func (t *fakeTunnel) Write(p wire.Payload) error {
	t.mu.Lock()
	stall, full := t.stall, t.full
	t.mu.Unlock()
	if stall != nil {
		<-stall
	}
	defer p.Free()
	if full != nil {
		return full
	}
	t.mu.Lock()
	t.got = append(t.got, p.Bytes()...)
	t.mu.Unlock()
	select {
	case t.grew <- struct{}{}:
	default:
	}
	return nil
}

func (t *fakeTunnel) CloseWrite() { t.events <- "half" }
func (t *fakeTunnel) HangUp()     { t.events <- "hangup" }
func (t *fakeTunnel) Close()      { t.events <- "close" }
func (t *fakeTunnel) Abort(r wire.Reason, _ string) {
	switch r {
	case wire.ReasonCanceled:
		t.events <- "cancel"
	case wire.ReasonShutdown: // as relay would
		go t.f.Close(relay.End{Reason: r})
	default:
		t.events <- "abort"
	}
}

// establish plays a dial that succeeded.
func (t *fakeTunnel) establish(tb testing.TB) {
	tb.Helper()
	t.mu.Lock()
	t.up = true
	t.mu.Unlock()
	if err := t.f.Established(1); err != nil {
		tb.Errorf("Established: %v", err)
	}
	close(t.answered)
}

// fail plays a dial that failed.
func (t *fakeTunnel) fail(r wire.Reason, text string) {
	t.mu.Lock()
	t.err = &wire.DialError{Reason: r, Err: errors.New(text)}
	t.mu.Unlock()
	close(t.answered)
	t.f.Failed(&wire.DialError{Reason: r, Err: errors.New(text)})
}

func (t *fakeTunnel) send(tb testing.TB, s string) {
	tb.Helper()
	if err := t.f.Write(wire.CopyPayload([]byte(s))); err != nil {
		tb.Errorf("Frontend.Write: %v", err)
	}
}

// expect waits for exactly these events.
func (t *fakeTunnel) expect(tb testing.TB, want ...string) {
	tb.Helper()
	for _, w := range want {
		select {
		case got := <-t.events:
			if got != w {
				tb.Fatalf("event %q, want %q (of %v)", got, w, want)
			}
		case <-time.After(hangLimit):
			tb.Fatalf("no event %q", w)
		}
	}
}

// quiet checks that nothing has been told.
func (t *fakeTunnel) quiet(tb testing.TB) {
	tb.Helper()
	select {
	case got := <-t.events:
		tb.Fatalf("event %q, want none", got)
	default:
	}
}

// waitFor waits until the tunnel has taken n bytes and returns all.
func (t *fakeTunnel) waitFor(tb testing.TB, n int) string {
	tb.Helper()
	limit := time.After(hangLimit)
	for {
		t.mu.Lock()
		got := string(t.got)
		t.mu.Unlock()
		if len(got) >= n {
			return got
		}
		select {
		case <-t.grew:
		case <-limit:
			tb.Fatalf("the tunnel has %d bytes, want %d", len(got), n)
		}
	}
}

// gauge is an Observer.
type gauge struct {
	mu sync.Mutex
	n  int
}

func (g *gauge) InFlight(d int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n += d
}

func (g *gauge) value() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n
}

// front is a frontend under test with one listener.
type front struct {
	*Server
	relay *fakeRelay
	gauge *gauge
	addr  net.Addr
	dial  func() (net.Conn, error)
}

// next returns the tunnel that the last request opened.
func (f *front) next(tb testing.TB) *fakeTunnel {
	tb.Helper()
	select {
	case t := <-f.relay.opened:
		return t
	case <-time.After(hangLimit):
		tb.Fatal("no tunnel was opened")
		return nil
	}
}

// media names the kinds of listener that newFront knows.
func media() []string { return []string{"unix", "tcp", "tls"} }

// newFront starts a frontend and checks at the end that nothing of it is left.
func newFront(t *testing.T, medium string) *front {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	f := &front{relay: &fakeRelay{opened: make(chan *fakeTunnel, 100)}, gauge: &gauge{}}
	f.Server = newServer(Config{}, f.relay, f.gauge)
	f.drainQuiet = 100 * time.Millisecond
	l, dial := listen(t, medium)
	f.addr, f.dial = l.Addr(), dial
	served := make(chan error, 1)
	go func() { served <- f.Serve(l) }()
	t.Cleanup(func() {
		f.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), hangLimit)
		defer cancel()
		if f.Wait(ctx) != nil {
			t.Errorf("%d sessions are left", f.Sessions())
		}
		if n := f.gauge.value(); n != 0 {
			t.Errorf("the gauge is %d at the end", n)
		}
		goleak.VerifyNone(t, ignore)
	})
	return f
}

func listen(tb testing.TB, medium string) (net.Listener, func() (net.Conn, error)) {
	tb.Helper()
	if medium == "unix" {
		path := filepath.Join(tb.TempDir(), "s")
		l, err := net.Listen("unix", path)
		if err != nil {
			tb.Fatal(err)
		}
		return l, func() (net.Conn, error) { return net.Dial("unix", path) }
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	if medium == "tcp" {
		return l, func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }
	}
	server, client := tlsPair(tb)
	return Listener(l, server), func() (net.Conn, error) { return tls.Dial("tcp", l.Addr().String(), client) }
}

// tlsPair makes configs of a server and of a client that trusts it.
func tlsPair(tb testing.TB) (server, client *tls.Config) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	server = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	return server, &tls.Config{RootCAs: roots, ServerName: "localhost"}
}

// connect sends a CONNECT and what is to follow its head in the same write.
func (f *front) connect(t *testing.T, rest string) net.Conn {
	t.Helper()
	conn, err := f.dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(hangLimit))
	write(t, conn, "CONNECT node1:10250 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"+rest)
	return conn
}

// open sends a CONNECT and plays it up to the 200.
func (f *front) open(t *testing.T) (net.Conn, *fakeTunnel) {
	t.Helper()
	conn := f.connect(t, "")
	tun := f.next(t)
	tun.establish(t)
	if got := read(t, conn, len(successLine)); got != successLine {
		t.Fatalf("answer %q", got)
	}
	return conn, tun
}

func write(t *testing.T, conn net.Conn, s string) {
	t.Helper()
	if _, err := conn.Write([]byte(s)); err != nil {
		t.Errorf("writing: %v", err)
	}
}

func read(t *testing.T, conn net.Conn, n int) string {
	t.Helper()
	b := make([]byte, n)
	for got := 0; got < n; {
		m, err := conn.Read(b[got:])
		got += m
		if err != nil {
			t.Fatalf("read %q, then %v", b[:got], err)
		}
	}
	return string(b)
}

// rest reads to the end and returns the error that was not EOF, if any.
func rest(conn net.Conn) (string, error) {
	var all strings.Builder
	b := make([]byte, 4096)
	for {
		n, err := conn.Read(b)
		all.Write(b[:n])
		if err != nil {
			if err.Error() == "EOF" {
				err = nil
			}
			return all.String(), err
		}
	}
}

// eventually waits for a condition that other goroutines make true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for limit := time.Now().Add(hangLimit); !ok(); <-time.After(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("never: %s", what)
		}
	}
}
