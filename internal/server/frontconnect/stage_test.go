package frontconnect

import "testing"

func TestNextForEveryPair(t *testing.T) {
	want := map[stage]map[event]stage{
		dialing:   {established: open, readerLeft: inputOver, tunnelOver: draining},
		open:      {established: open, readerLeft: inputOver, tunnelOver: draining},
		inputOver: {established: inputOver, readerLeft: inputOver, tunnelOver: over},
		draining:  {established: draining, readerLeft: over, tunnelOver: draining},
		over:      {established: over, readerLeft: over, tunnelOver: over},
	}
	for s := dialing; s <= over; s++ {
		for e := established; e <= tunnelOver; e++ {
			if got := next(s, e); got != want[s][e] {
				t.Errorf("next(%v, %d) = %v, want %v", s, e, got, want[s][e])
			}
		}
		if s.String() == "unknown" {
			t.Errorf("stage %d has no name", s)
		}
	}
	if (over + 1).String() != "unknown" {
		t.Error("a stage that does not exist has a name")
	}
}
