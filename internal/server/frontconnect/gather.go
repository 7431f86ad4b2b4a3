package frontconnect

import (
	"net"
	"sync"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// gatherer writes payloads that consist of several buffers with one system call
// and without copying them.
type gatherer struct {
	pool sync.Pool // of *gathering
}

type gathering struct {
	list [][]byte
	view net.Buffers // of list; a write consumes it
}

// write sends p on sock and leaves it to the caller to free it.
func (g *gatherer) write(sock *socket, p wire.Payload) error {
	if p.Len() == 0 {
		return nil
	}
	w, ok := g.pool.Get().(*gathering)
	if !ok {
		w = &gathering{list: make([][]byte, 0, 8)}
	}
	w.list = p.AppendTo(w.list[:0])
	var err error
	switch {
	case len(w.list) == 1:
		_, err = sock.conn.Write(w.list[0])
	case sock.medium == overTLS && p.Len() <= recordSize:
		// One record instead of several: encrypting copies the bytes anyway.
		_, err = sock.conn.Write(p.Bytes())
	default:
		w.view = w.list
		_, err = w.view.WriteTo(sock.conn)
		w.view = nil
	}
	clear(w.list)
	g.pool.Put(w)
	return err
}
