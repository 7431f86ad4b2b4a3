package flow

import (
	"testing"
	"time"
)

// A peer takes a long silence for a consumer that is stuck, so one that takes
// little, but goes on, must be heard of; and none of its credit may get lost.
func TestSlowConsumerStillGrantsEverySecond(t *testing.T) {
	w := NewWindow(NewBudget(1<<30), WindowConfig{})
	defer w.Release()
	size := w.Size()
	if err := w.Received(size); err != nil {
		t.Fatal(err)
	}
	now, last, granted := time.Now(), time.Time{}, int64(0)
	start := now
	for now.Sub(start) < time.Minute {
		now = now.Add(100 * time.Millisecond)
		if n := w.Consumed(10, now, time.Millisecond); n > 0 {
			if !last.IsZero() && now.Sub(last) > 1100*time.Millisecond {
				t.Errorf("%v passed between two grants", now.Sub(last))
			}
			last = now
			granted += n
		}
	}
	if granted < 600*10-100 || granted > 600*10 || now.Sub(last) > 1100*time.Millisecond {
		t.Errorf("%d bytes were granted for 6000, the last %v ago", granted, now.Sub(last))
	}
	if w.Size() != size {
		t.Errorf("the window is %d bytes, not %d", w.Size(), size)
	}
}
