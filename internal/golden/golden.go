// Package golden holds checks that the tests of both binaries share: texts that
// must not change unnoticed, flags, and what a process's metrics show.
package golden

import (
	"bytes"
	"os"
	"testing"
)

// updateVariable, if set, makes Compare write instead of compare (`make gen`).
const updateVariable = "UPDATE_GOLDEN"

// Compare fails the test if got is not what the file at path holds. Tests that
// call it have Golden or Transcript in their names, which `make gen` looks for.
func Compare(t testing.TB, path string, got []byte) {
	t.Helper()
	if os.Getenv(updateVariable) != "" {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s does not hold; if the change is meant, run `make gen`. Now it is:\n%s", path, got)
	}
}
