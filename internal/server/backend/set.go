package backend

import (
	"net/netip"
	"slices"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Member says who a backend is for routing. Fixed while it is joined.
type Member struct {
	AgentID     string
	Identifiers wire.Identifiers
}

// entry is one joined backend and its seats in the sets of all managers.
type entry[B any] struct {
	backend B
	member  Member
	zone    zone
	seats   []seat[B]
	in      []bool // whether it has a seat in the router's manager of that number
}

// zone tells the two lists of a set apart.
type zone uint8

const (
	near  zone = iota // the server's own failure zone; everybody if it has none
	far               // another zone, or none
	zones             // how many there are
)

// seat is where an entry sits: set.lists[entry.zone][index].
type seat[B any] struct {
	set   *set[B]
	index int
}

// place is one element of a list. It knows its seat, so that a swap is O(1).
type place[B any] struct {
	backend B
	entry   *entry[B]
	seat    int // entry.seats[seat] points back here
}

// key is what a set is stored under. One field is set, or none for the managers
// that have a single set.
type key struct {
	name   string // exact host
	suffix string // of a pattern, with its dot
	addr   netip.Addr
	prefix netip.Prefix
}

// String is the key for people.
func (k key) String() string {
	switch {
	case k.name != "":
		return "host " + k.name
	case k.suffix != "":
		return "host *" + k.suffix
	case k.addr.IsValid():
		return "address " + k.addr.String()
	case k.prefix.IsValid():
		return "prefix " + k.prefix.String()
	}
	return "any destination"
}

// set holds the backends of one key. Adding and removing are O(1).
type set[B any] struct {
	key   key
	owner manager[B]
	lists [zones][]place[B]
}

func (s *set[B]) len() int { return len(s.lists[near]) + len(s.lists[far]) }

func (s *set[B]) add(e *entry[B]) {
	list := &s.lists[e.zone]
	e.seats = append(e.seats, seat[B]{set: s, index: len(*list)})
	*list = append(*list, place[B]{backend: e.backend, entry: e, seat: len(e.seats) - 1})
}

// remove takes e out of the seat number i; the last of the list moves there.
func (s *set[B]) remove(e *entry[B], i int) {
	list := s.lists[e.zone]
	index, last := e.seats[i].index, len(list)-1
	moved := list[last]
	list[index] = moved
	moved.entry.seats[moved.seat].index = index
	list[last] = place[B]{}
	s.lists[e.zone] = list[:last]
	if c := cap(list); c > 64 && last < c/4 { // give memory back after a wave of leaves
		s.lists[e.zone] = slices.Clip(slices.Clone(list[:last]))
	}
}
