package rig

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/klog/v2"
)

// play runs a scenario in a bubble of its own.
func play(t *testing.T, name, scenario string) (transcript string, err error) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		c := NewCluster(klog.Logger{})
		transcript, err = Play(c, name, scenario)
		err = errors.Join(err, c.Close())
	})
	return transcript, err
}

// TestTranscripts plays every scenario and compares what happens with what was
// recorded. UPDATE_GOLDEN=1 records anew.
func TestTranscripts(t *testing.T) {
	scenarios, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(scenarios) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range scenarios {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			scenario, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := play(t, file, string(scenario))
			if err != nil {
				t.Error(err)
			}
			golden(t, strings.TrimSuffix(file, ".txt")+".golden", got)
		})
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (UPDATE_GOLDEN=1 records it)", err)
	}
	if line, ours, theirs := difference(got, string(want)); line > 0 {
		t.Errorf("%s:%d: recorded:\n%s\nnow:\n%s\n(UPDATE_GOLDEN=1 records anew)", file, line, theirs, ours)
	}
}

// difference is the number of the first line that differs, 0 for none.
func difference(got, want string) (line int, ours, theirs string) {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		ours, theirs = "(the end)", "(the end)"
		if i < len(g) {
			ours = g[i]
		}
		if i < len(w) {
			theirs = w[i]
		}
		if ours != theirs {
			return i + 1, ours, theirs
		}
	}
	return 0, "", ""
}
