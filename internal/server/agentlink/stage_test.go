package agentlink

import "testing"

func TestStages(t *testing.T) {
	want := map[stage][]stage{ // by event: ready, replaced, ended
		waiting: {joined, left, left},
		joined:  {joined, left, left},
		left:    {left, left, left},
	}
	for s, row := range want {
		for i, e := range []event{ready, replaced, ended} {
			if got := next(s, e); got != row[i] {
				t.Errorf("stage %d, event %d: stage %d, want %d", s, e, got, row[i])
			}
		}
	}
}

func TestOnlyTheSameSlotOfTheSameProcessIsReplaced(t *testing.T) {
	one := identity{"a", "i", "1"}
	for o, want := range map[identity]bool{
		one: true, {"b", "i", "1"}: false, {"a", "j", "1"}: false, {"a", "i", "2"}: false, {"a", "", ""}: false,
	} {
		if one.succeeds(o) != want || o.succeeds(one) != want {
			t.Errorf("%v in the place of %v: %v", one, o, !want)
		}
	}
	if old := (identity{agentID: "a"}); old.succeeds(old) {
		t.Error("links of old agents cannot be told apart, so none replaces another")
	}
}
