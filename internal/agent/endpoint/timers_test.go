package endpoint

import (
	"testing"
	"time"
)

func TestStalls(t *testing.T) {
	var s stalls
	at := func(sec float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(sec * float64(time.Second))) }
	limit := 10 * time.Second
	steps := []struct {
		at   float64
		add  time.Duration
		left time.Duration
	}{
		{0, 0, 10 * time.Second},
		{0, 4 * time.Second, 6 * time.Second},
		{30, 5 * time.Second, time.Second},
		{59, 0, time.Second},
		{61, 0, 5 * time.Second}, // the first has left the minute
		{62, 6 * time.Second, 0}, // never negative
		{89, 0, 0},
		{91, 0, 4 * time.Second},
		{1000, 0, 10 * time.Second},
	}
	for _, step := range steps {
		s.add(at(step.at), step.add)
		if got := s.allowance(at(step.at), limit); got != step.left {
			t.Errorf("at %v s, after a wait of %v: %v left, want %v", step.at, step.add, got, step.left)
		}
	}
}

func TestLingerCheck(t *testing.T) {
	at := func(sec float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(sec * float64(time.Second))) }
	type step struct {
		at      float64
		heard   bool
		unacked int64
		want    lingerVerdict
	}
	cases := map[string]struct {
		first int64
		steps []step
	}{
		"acked and quiet":     {0, []step{{0.9, false, 0, lingerOn}, {1, false, 0, lingerDone}}},
		"acked and talking":   {0, []step{{0.9, true, 0, lingerOn}, {1.8, false, 0, lingerOn}, {1.9, false, 0, lingerDone}}},
		"talks for ever":      {0, []step{{5, true, 0, lingerOn}, {9.9, true, 0, lingerOn}, {10, true, 0, lingerDone}}},
		"quiet after acks":    {100, []step{{3, false, 0, lingerOn}, {3.9, false, 0, lingerOn}, {4, false, 0, lingerDone}}},
		"acks slowly":         {100, []step{{9, false, 90, lingerOn}, {18, false, 80, lingerOn}, {27, false, 0, lingerOn}, {28, false, 0, lingerDone}}},
		"acks nothing":        {100, []step{{9, false, 100, lingerOn}, {10, false, 100, lingerGiveUp}}},
		"talks, acks nothing": {100, []step{{9, true, 100, lingerOn}, {10, true, 100, lingerGiveUp}}},
		"stops to ack":        {100, []step{{5, false, 50, lingerOn}, {14.9, false, 50, lingerOn}, {15, false, 50, lingerGiveUp}}},
	}
	for name, tc := range cases {
		l := newLinger(at(0), tc.first, time.Second, 10*time.Second)
		for _, s := range tc.steps {
			if l.until.Before(at(0)) || s.want == lingerOn && l.until.After(at(s.at+10)) {
				t.Errorf("%s: would look again at %v", name, l.until)
			}
			if s.heard {
				l.heard(at(s.at))
			}
			if got := l.check(at(s.at), s.unacked); got != s.want {
				t.Errorf("%s: at %v s got %v, want %v", name, s.at, got, s.want)
			}
		}
	}
}
