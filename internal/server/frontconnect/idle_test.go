package frontconnect

import (
	"net"
	"runtime"
	"testing"
)

// An idle session must stay small: a server holds thousands. The bound is for
// heap and stacks of the session and of net's own objects, with its peer's socket
// in the same process, and without relay's part.
func TestIdleSessionIsSmall(t *testing.T) {
	const (
		sessions = 500
		bound    = 10 << 10
	)
	f := newFront(t, "unix")
	f.open(t) // what exists once
	before := memoryInUse()
	conns := make([]net.Conn, 0, sessions)
	for range sessions {
		conn, tun := f.open(t)
		write(t, conn, "a request")
		tun.waitFor(t, 9)
		tun.send(t, "an answer")
		read(t, conn, 9)
		conns = append(conns, conn)
	}
	per := (memoryInUse() - before) / sessions
	t.Logf("%d bytes per idle session", per)
	if per > bound {
		t.Errorf("an idle session takes %d bytes, more than %d", per, bound)
	}
	runtime.KeepAlive(conns)
}

func memoryInUse() uint64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
