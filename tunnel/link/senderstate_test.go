package link

import "testing"

func TestSenderNextEveryPair(t *testing.T) {
	const o, h, c, e, a = senderOpen, senderHalfClosed, senderClosing, senderEnded, senderAborted
	want := map[senderEvent][5]senderState{ // by state, in that order
		eventHalfClose: {h, h, c, e, a},
		eventClose:     {c, c, c, e, a},
		eventDrained:   {o, h, e, e, a},
		eventAbort:     {a, a, a, e, a},
		eventLinkLost:  {a, a, a, e, a},
	}
	for event, row := range want {
		for i, state := range []senderState{o, h, c, e, a} {
			if got := next(state, event); got != row[i] {
				t.Errorf("next(%d, %d) = %d, want %d", state, event, got, row[i])
			}
		}
	}
}
