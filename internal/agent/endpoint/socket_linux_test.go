package endpoint

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// tcpPair is a socket and the endpoint's side of it.
func tcpPair(t *testing.T) (socket, *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	s := newSocket(near, &chunks{})
	if _, ok := s.(*tcpSocket); !ok {
		t.Fatalf("a TCP connection became a %T", s)
	}
	s.setReadDeadline(time.Now().Add(20 * time.Second)) // a limit for hangs
	return s, far.(*net.TCPConn)
}

// waitReset waits until the reset has arrived, without reading or writing.
func waitReset(t *testing.T, s socket) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !s.wasReset(); {
		if time.Now().After(end) {
			t.Fatal("the reset does not arrive")
		}
	}
}

// TestWriterTakesTheReset: the kernel reports a reset once. If a writer gets the
// report the reader must not take what it gets for an orderly end.
func TestWriterTakesTheReset(t *testing.T) {
	s, far := tcpPair(t)
	_ = far.SetLinger(0)
	_ = far.Close()
	waitReset(t, s)
	if n := s.tryWrite([][]byte{[]byte("x")}); n != 0 {
		t.Fatalf("wrote %d bytes", n)
	}
	if _, err := s.read(); !errors.Is(err, io.EOF) {
		t.Fatalf("read: %v; on this kernel the test proves nothing", err)
	}
	if !s.wasReset() {
		t.Error("the reset is forgotten")
	}
}

func TestReaderSeesTheReset(t *testing.T) {
	s, far := tcpPair(t)
	if _, err := far.Write([]byte("before")); err != nil {
		t.Fatal(err)
	}
	_ = far.SetLinger(0)
	_ = far.Close()
	waitReset(t, s)
	p, err := s.read()
	if err != nil || string(p.Bytes()) != "before" {
		t.Fatalf("read %q, %v", p.Bytes(), err)
	}
	p.Free()
	if _, err := s.read(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read: %v", err)
	}
}

func TestOrderlyEndIsNoReset(t *testing.T) {
	s, far := tcpPair(t)
	_ = far.CloseWrite()
	if _, err := s.read(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if s.wasReset() {
		t.Error("a FIN is taken for a reset")
	}
}

func TestUnackedCounts(t *testing.T) {
	s, far := tcpPair(t)
	written := 0
	for {
		n := s.tryWrite([][]byte{make([]byte, 32<<10), make([]byte, 32<<10)})
		if n == 0 {
			break
		}
		written += n
	}
	if n := s.unacked(); n <= 0 || n > int64(written) {
		t.Fatalf("%d of %d bytes unacknowledged by an endpoint that does not read", n, written)
	}
	if _, err := io.CopyN(io.Discard, far, int64(written)); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); s.unacked() != 0; {
		if time.Now().After(end) {
			t.Fatalf("%d bytes unacknowledged after all were read", s.unacked())
		}
	}
}

// TestReadSizes: few bytes are copied out, many fill several buffers at once.
func TestReadSizes(t *testing.T) {
	s, far := tcpPair(t)
	go func() { _, _ = far.Write(pattern(4 << 20)) }()
	largest := 0
	for total := 0; total < 4<<20; {
		p, err := s.read()
		if err != nil {
			t.Fatal(err)
		}
		total += p.Len()
		largest = max(largest, p.Len())
		for _, b := range p.Buffers() {
			if b.Len() > chunkSize {
				t.Errorf("a buffer of %d bytes", b.Len())
			}
			b.Free()
		}
	}
	if largest <= chunkSize {
		t.Errorf("at most %d bytes in one read of a fast stream", largest)
	}
	if _, err := far.Write([]byte("tiny")); err != nil {
		t.Fatal(err)
	}
	p, err := s.read()
	if err != nil || p.Len() != 4 {
		t.Fatalf("read %d, %v", p.Len(), err)
	}
	if b := p.Buffers()[0].ReadOnlyData(); cap(b) > 64 {
		t.Errorf("4 bytes hold a buffer of %d", cap(b))
	}
}

// TestDeadlinesAndClose wake a read and a write that wait.
func TestDeadlinesAndClose(t *testing.T) {
	s, _ := tcpPair(t)
	read := make(chan error, 1)
	go func() {
		_, err := s.read()
		read <- err
	}()
	s.setReadDeadline(time.Now())
	if err := <-read; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read: %v", err)
	}
	write := make(chan error, 1)
	go func() {
		for {
			if _, err := s.write([][]byte{make([]byte, 64<<10)}); err != nil {
				write <- err
				return
			}
		}
	}()
	s.close()
	if err := <-write; !errors.Is(err, net.ErrClosed) {
		t.Errorf("write: %v", err)
	}
	if n := s.tryWrite([][]byte{{1}}); n != 0 {
		t.Errorf("wrote %d bytes to a closed socket", n)
	}
}

// TestStreamSocket: the way that works with any connection.
func TestStreamSocket(t *testing.T) {
	near, far := net.Pipe()
	s := newSocket(near, &chunks{})
	go func() {
		_, _ = far.Write([]byte("hello"))
		_ = far.Close()
	}()
	p, err := s.read()
	if err != nil || string(p.Bytes()) != "hello" {
		t.Fatalf("read %q, %v", p.Bytes(), err)
	}
	p.Free()
	if _, err := s.read(); !errors.Is(err, io.EOF) {
		t.Errorf("read: %v", err)
	}
	if n := s.tryWrite([][]byte{{1}}); n != 0 || s.wasReset() || s.unacked() != 0 || s.closeWrite() != nil {
		t.Error("it promises what it cannot do")
	}
	s.reset()
	if _, err := s.write([][]byte{{1}}); err == nil {
		t.Error("wrote to a closed pipe")
	}
	var none wire.Payload
	none.Free()
}
