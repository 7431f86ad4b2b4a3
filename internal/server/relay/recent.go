package relay

import (
	"slices"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// recentIDs remembers the last dial IDs that were added, in fixed memory.
type recentIDs struct {
	ids  []wire.DialID
	next int
}

// maxRecent is more dials than are as a rule withdrawn from one link in the few
// seconds that its agent may take to answer them.
const maxRecent = 128

func (r *recentIDs) add(id wire.DialID) {
	if len(r.ids) < maxRecent {
		r.ids = append(r.ids, id)
		return
	}
	r.ids[r.next] = id
	r.next = (r.next + 1) % maxRecent
}

func (r *recentIDs) has(id wire.DialID) bool {
	return slices.Contains(r.ids, id)
}
