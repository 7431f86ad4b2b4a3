package fleet

import (
	"errors"
	"io"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// held is a link that was kept. It is told what the link's server says.
type held struct {
	// Fixed after construction.
	fleet *Fleet
	link  Link
	id    string // the server's

	// Guarded by fleet.mu.
	draining bool
}

// silence is after how much of it a new link to the same server takes a link's
// place. A server with extension "ping" sends something every 8 s at least; of
// others silence says nothing.
const silence = 15 * time.Second

// dead reports whether a new link should take h's place.
func (h *held) dead(now time.Time) bool {
	return h.link.Extensions().Has(wire.ExtPing) && now.Sub(h.link.LastReceived()) > silence
}

// serve is the link's goroutine.
func (h *held) serve() {
	f := h.fleet
	f.deps.Received.LinkUp(h.id)
	err := h.link.Run(h)
	f.mu.Lock()
	delete(f.all, h)
	h.uncount()
	f.obs.Connected(len(f.all))
	if len(f.all) == 0 && f.alone != nil {
		close(f.alone)
		f.alone = nil
	}
	f.log.Info("Link to a server is over", "serverID", h.id, "address", h.link.Target().Address, "reason", why(err), "links", len(f.active), "servers", f.plan.count)
	f.mu.Unlock()
	f.deps.Received.LinkDown(h.id)
	f.Wake()
}

// why is the reason for the end of a link.
func why(err error) string {
	if err == nil || errors.Is(err, io.EOF) {
		return "the server ended it"
	}
	return err.Error()
}

// uncount takes h off the links that count. fleet.mu is held.
func (h *held) uncount() {
	if f := h.fleet; f.active[h.id] == h {
		delete(f.active, h.id)
		now := time.Now()
		f.plan.lost(now, h.id, now.Sub(h.link.Since()))
	}
}

// CountChanged implements serverlink.Events.
func (h *held) CountChanged(n int) {
	before, after := h.fleet.deps.Received.Answered(h.id, n)
	h.fleet.logAnswer(h.id, before, after)
	h.fleet.Wake()
}

// Draining implements serverlink.Events: the link lives on, but another server
// is wanted in its place.
func (h *held) Draining() {
	f := h.fleet
	f.mu.Lock()
	h.draining = true
	h.uncount()
	f.log.Info("A server asks its agents to move on", "serverID", h.id)
	f.mu.Unlock()
	f.Wake()
}
