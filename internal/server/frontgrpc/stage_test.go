package frontgrpc

import "testing"

func TestStages(t *testing.T) {
	events := []event{dialRequested, established, writeClosed, closeAccepted, givenUp, finished}
	want := map[stage][]stage{
		fresh:      {dialing, fresh, fresh, fresh, fresh, over},
		dialing:    {dialing, open, dialing, dialing, closing, over},
		open:       {open, open, halfClosed, closing, closing, over},
		halfClosed: {halfClosed, halfClosed, halfClosed, closing, closing, over},
		closing:    {closing, closing, closing, closing, closing, over},
		over:       {over, over, over, over, over, over},
	}
	if len(want) != int(over)+1 {
		t.Fatal("a stage is missing")
	}
	for s, row := range want {
		for i, e := range events {
			if got := next(s, e); got != row[i] {
				t.Errorf("stage %d, event %d: stage %d, want %d", s, e, got, row[i])
			}
		}
		if s.takesData() != (s == open) || s.listens() != (s != closing && s != over) {
			t.Errorf("stage %d takes data: %v, listens: %v", s, s.takesData(), s.listens())
		}
	}
}

func TestLossStages(t *testing.T) {
	events := []lossEvent{chunkSent, clientSpoke, closeCame, quietOver, reportsOver, ruleOver}
	want := map[lossStage][]lossStage{
		silent:  {held, passed, passed, silent, silent, passed},
		held:    {held, passed, lost, watched, passed, passed},
		watched: {watched, passed, lost, watched, passed, passed},
		lost:    {held, spoken, passed, lost, lost, passed},
		spoken:  {passed, spoken, passed, spoken, spoken, passed},
		passed:  {passed, passed, passed, passed, passed, passed},
	}
	if len(want) != int(passed)+1 {
		t.Fatal("a stage is missing")
	}
	for l, row := range want {
		for i, e := range events {
			if got := l.next(e); got != row[i] {
				t.Errorf("stage %d, event %d: stage %d, want %d", l, e, got, row[i])
			}
		}
		if l.repeats() != (l == lost || l == spoken) {
			t.Errorf("stage %d repeats: %v", l, l.repeats())
		}
	}
}
