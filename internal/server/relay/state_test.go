package relay

import "testing"

// TestEveryTransition holds the whole life of a tunnel: a row per state, a column
// per event.
func TestEveryTransition(t *testing.T) {
	const (
		d  = dialing
		op = open
		cd = clientDone
		ed = endpointDone
		hu = hungUp
		cl = closing
		le = leaving
		de = delivering
		ov = over
	)
	want := [states][events]state{
		//             answered failed cHalf cHung cClosed cLost eHalf eClosed lost delivered broken
		dialing:      {op, ov, d, ov, ov, ov, d, d, d, d, ov},
		open:         {op, op, cd, hu, cl, ov, ed, de, de, op, ov},
		clientDone:   {cd, cd, cd, le, cl, ov, cl, de, de, cd, ov},
		endpointDone: {ed, ed, cl, hu, cl, ov, ed, de, de, ed, ov},
		hungUp:       {hu, hu, le, hu, le, ov, hu, ov, ov, hu, ov},
		closing:      {cl, cl, cl, le, cl, le, cl, de, de, cl, ov},
		leaving:      {le, le, le, le, le, le, le, ov, ov, le, ov},
		delivering:   {de, de, de, ov, de, ov, de, de, de, ov, ov},
		over:         {ov, ov, ov, ov, ov, ov, ov, ov, ov, ov, ov},
	}
	for s := range state(states) {
		for e := range event(events) {
			if got := next(s, e); got != want[s][e] {
				t.Errorf("next(%v, event %d) = %v, want %v", s, e, got, want[s][e])
			}
		}
	}
}

func TestStatesHaveNames(t *testing.T) {
	for s := range state(states) {
		if s.String() == "unknown" || s.String() == "" {
			t.Errorf("state %d has no name", s)
		}
	}
	if state(states).String() != "unknown" {
		t.Error("a state beyond the last has a name")
	}
}

// TestOnlyStatesThatCanEndAreFinal: every state but the last has a way out that
// the relay itself can take, so no tunnel can outlive all limits.
func TestEveryStateCanBeBroken(t *testing.T) {
	for s := range over {
		if got := next(s, evBroken); got != over {
			t.Errorf("next(%v, evBroken) = %v", s, got)
		}
	}
}
