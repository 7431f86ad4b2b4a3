package endpoint

import "testing"

// TestNext is the whole table: every state with every event. Events are in the
// order of their constants.
func TestNext(t *testing.T) {
	const (
		op = stateOpen
		sd = stateServerDone
		fs = stateFinSent
		ed = stateEndpointDone
		bd = stateBothDone
		cl = stateClosing
		cd = stateClosingDone
		li = stateLingering
		ec = stateEndpointClosed
		an = stateAnswered
		fl = stateFlushing
		pa = stateParting
		en = stateEnded
	)
	table := [states][events]state{
		// half, close, abort, lost, delivered, write failed, give up, EOF, full EOF, read failed, lingered, flushed
		op: {sd, cl, en, pa, op, op, op, ed, ec, fl, op, op},
		sd: {sd, cl, en, pa, fs, sd, sd, bd, ec, fl, sd, sd},
		fs: {fs, li, en, en, fs, fs, fs, fl, fl, fl, fs, fs},
		ed: {bd, cd, en, pa, ed, fl, ed, ed, ed, ed, ed, ed},
		bd: {bd, cd, en, bd, fl, fl, fl, bd, bd, bd, bd, bd},
		cl: {cl, cl, en, cl, li, en, en, cd, cd, en, cl, cl},
		cd: {cd, cd, en, cd, en, en, en, cd, cd, cd, cd, cd},
		li: {li, li, en, li, li, li, li, en, en, en, en, li},
		ec: {ec, an, en, ec, fl, fl, fl, ec, ec, ec, ec, an},
		an: {an, an, en, an, en, en, en, an, an, an, an, an},
		fl: {fl, en, en, en, fl, fl, fl, fl, fl, fl, fl, en},
		pa: {pa, pa, en, pa, en, en, en, pa, pa, en, pa, pa},
		en: {en, en, en, en, en, en, en, en, en, en, en, en},
	}
	for s := range states {
		for e := range events {
			if got, want := next(state(s), event(e)), table[s][e]; got != want {
				t.Errorf("next(%d, %d) = %d, want %d", s, e, got, want)
			}
		}
	}
}

// TestEveryStateEnds: whatever has happened, a lost link ends it, and the states
// that wait only for ourselves end by themselves.
func TestEveryStateEnds(t *testing.T) {
	for s := range states {
		if next(state(s), evAbort) != stateEnded {
			t.Errorf("state %d survives an abort", s)
		}
		if state(s).String() == "unknown" {
			t.Errorf("state %d has no name", s)
		}
	}
	if state(states).String() != "unknown" {
		t.Error("a state that is none has a name")
	}
}
