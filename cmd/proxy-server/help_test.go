package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestGoldenHelp holds the text of --help. `make gen` writes it anew.
func TestGoldenHelp(t *testing.T) {
	var stdout, stderr bytes.Buffer
	code := run(context.Background(), []string{"--help"}, func(string) string { return "" }, &stdout, &stderr)
	if code != 0 || stderr.Len() > 0 {
		t.Fatalf("exit status %d, standard error %q", code, stderr.String())
	}
	golden := filepath.Join("testdata", "help.txt")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(golden, stdout.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got := stdout.String(); got != string(want) {
		t.Errorf("--help has changed; if it is meant, run `make gen`:\n%s", got)
	}
}

// TestEveryKnownFlagIsThere compares with the names that manifests use, and asks
// for a help text for each flag.
func TestEveryKnownFlagIsThere(t *testing.T) {
	known, err := os.ReadFile(filepath.Join("testdata", "flags.txt"))
	if err != nil {
		t.Fatal(err)
	}
	f := newFlags(&bytes.Buffer{}, func(string) string { return "" })
	names := strings.Fields(string(known))
	if len(names) < 40 {
		t.Fatalf("only %d names in testdata/flags.txt", len(names))
	}
	for _, name := range names {
		if f.set.Lookup(name) == nil {
			t.Errorf("--%s is missing", name)
		}
	}
	f.set.VisitAll(func(flag *pflag.Flag) {
		if flag.Usage == "" {
			t.Errorf("--%s has no help text", flag.Name)
		}
	})
}
