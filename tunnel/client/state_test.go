package client

import "testing"

// The whole life of a connection: every pair of state and event.
func TestNext(t *testing.T) {
	moves := map[state]map[event]state{
		fresh:       {dialled: dialing},
		dialing:     {answered: open},
		open:        {selfHalfClosed: writeClosed, peerHalfClosed: readClosed, selfClosed: closing},
		writeClosed: {peerHalfClosed: bothClosed, selfClosed: closing},
		readClosed:  {selfHalfClosed: bothClosed, selfClosed: closing},
		bothClosed:  {selfClosed: closing},
		closing:     {},
		ending:      {},
		gone:        {},
	}
	for s := fresh; s <= gone; s++ {
		for e := dialled; e <= streamLost; e++ {
			want, ok := moves[s][e]
			switch {
			case ok:
			case s == gone || e == streamLost:
				want = gone
			case e == finished:
				want = ending
			default:
				want = s
			}
			if got := next(s, e); got != want {
				t.Errorf("state %d, event %d: got %d, want %d", s, e, got, want)
			}
		}
	}
}

// What a state permits.
func TestStates(t *testing.T) {
	tests := []struct {
		s                  state
		established, reads bool
		status             Status
	}{
		{fresh, false, false, StatusCreated},
		{dialing, false, false, StatusDialing},
		{open, true, true, StatusOK},
		{writeClosed, true, true, StatusOK},
		{readClosed, true, false, StatusOK},
		{bothClosed, true, false, StatusOK},
		{closing, false, false, StatusOK},
		{ending, false, false, StatusNone},
		{gone, false, false, StatusNone},
	}
	for _, test := range tests {
		if test.s.established() != test.established || test.s.reads() != test.reads || test.s.status() != test.status {
			t.Errorf("state %d: %v, %v, %v", test.s, test.s.established(), test.s.reads(), test.s.status())
		}
	}
}
