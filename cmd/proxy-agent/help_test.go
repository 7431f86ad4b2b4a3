package main

import (
	"bytes"
	"context"
	"testing"

	"github.com/culvert-proxy/culvert/internal/golden"
)

func noEnvironment(string) string { return "" }

// TestGoldenHelp holds the text of --help.
func TestGoldenHelp(t *testing.T) {
	golden.Help(t, "testdata/help.txt", func(stdout, stderr *bytes.Buffer) int {
		return run(context.Background(), []string{"--help"}, noEnvironment, stdout, stderr)
	})
}

func TestEveryKnownFlagIsThere(t *testing.T) {
	golden.KnownFlags(t, "testdata/flags.txt", newFlags(&bytes.Buffer{}, noEnvironment).set)
}
