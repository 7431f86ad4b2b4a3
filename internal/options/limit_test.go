package options

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
)

func TestRepeatedLinesAreLimitedWithACount(t *testing.T) {
	var lines []string
	now := time.Unix(1000, 0)
	log := Limited(funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}), func() time.Time { return now })
	for i := range 250 {
		log.WithValues("serverID", "s").Info("Dial failed", "endpoint", fmt.Sprint(i))
	}
	if len(lines) != logBurst {
		t.Fatalf("%d lines of 250 came at once, want %d", len(lines), logBurst)
	}
	log.Info("Another message")
	log.Error(errors.New("x"), "Dial failed")
	if len(lines) != logBurst+2 {
		t.Fatalf("%d lines, want others to be limited apart", len(lines))
	}
	now = now.Add(time.Second / logPerSecond)
	log.Info("Dial failed")
	log.Info("Dial failed")
	if len(lines) != logBurst+3 {
		t.Fatalf("%d lines, want one more after the time of one", len(lines))
	}
	if last := lines[len(lines)-1]; !strings.Contains(last, `"suppressed"=150`) {
		t.Errorf("the line is %s, want the number of those that were left out", last)
	}
	now = now.Add(time.Hour)
	log.Info("Dial failed")
	if last := lines[len(lines)-1]; !strings.Contains(last, `"suppressed"=1`) {
		t.Errorf("the line is %s, want the one that was left out", last)
	}
	for range 2 * logBurst {
		log.Info("Dial failed")
	}
	if n := len(lines); n != logBurst+4+logBurst-1 {
		t.Errorf("%d lines after an hour, want no more than a burst", n)
	}
}

// TestCallersStayRight: a line names the place that logged it, not the limiter.
func TestCallersStayRight(t *testing.T) {
	var line string
	log := Limited(funcr.New(func(_, args string) { line = args }, funcr.Options{LogCaller: funcr.All}), time.Now)
	log.Info("here")
	if !strings.Contains(line, "limit_test.go") {
		t.Errorf("the line is %s", line)
	}
}
