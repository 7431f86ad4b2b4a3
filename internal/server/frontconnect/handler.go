package frontconnect

import (
	"context"
	"net"
	"net/http"
	"runtime/pprof"
	"strconv"

	"github.com/culvert-proxy/culvert/internal/server/relay"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// serveHTTP takes the socket of a CONNECT and gives it to a session; it answers
// every other method itself. It returns at once, so that net/http's goroutine and
// buffers are freed.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	s.obs.InFlight(+1)
	if r.Method != http.MethodConnect {
		defer s.obs.InFlight(-1)
		w.Header().Set("Allow", http.MethodConnect)
		http.Error(w, wrongMethod, http.StatusMethodNotAllowed)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		defer s.obs.InFlight(-1)
		http.Error(w, "the connection cannot be taken over", http.StatusInternalServerError)
		return
	}
	early, _ := rw.Reader.Peek(rw.Reader.Buffered())
	// The target, not the header, names the destination; net/http has put the
	// header in its place where the target names none. COMPAT 2.2.
	s.begin(conn, wire.CopyPayload(early), r.Host)
}

// begin starts the tunnel and the session's reader.
func (s *Server) begin(conn net.Conn, early wire.Payload, address string) {
	sess := &session{srv: s, sock: newSocket(conn), early: early}
	sess.sock.keepAlive()
	if sess.sock.rc != nil && sess.sock.medium != overTLS {
		sess.in = newSocketInput(sess.sock.rc, s.chunks)
	} else {
		sess.in = newStreamInput(conn, s.records)
	}
	watch, ok := s.admit(sess)
	if !ok {
		early.Free()
		sess.sock.close(true)
		s.obs.InFlight(-1)
		return
	}
	req := relay.Request{
		DialID:       s.relay.newDialID(),
		Protocol:     "tcp",
		Address:      address,
		CanHalfClose: sess.sock.canHalfClose(),
		Frontend:     Name,
	}
	sess.attach(s.relay.open(s.ctx, req, sess))
	if watch != nil && sess.sock.rc != nil {
		// Without a watch (the kernel's limit was reached) reads and writes notice.
		_ = watch.add(sess.id, sess.sock.rc)
	}
	go sess.run(req.DialID)
}

// run is the reader's goroutine, labelled for profiles.
func (s *session) run(id wire.DialID) {
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(),
		pprof.Labels("frontend", Name, "dialID", strconv.FormatInt(int64(id), 10))))
	s.read()
}
