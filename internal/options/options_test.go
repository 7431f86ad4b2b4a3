package options

import (
	"bytes"
	"strings"
	"testing"
)

func TestBytes(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "65536": 65536, "64Ki": 64 << 10, "512Mi": 512 << 20, "2Gi": 2 << 30} {
		var b Bytes
		if err := b.Set(text); err != nil || int64(b) != want {
			t.Errorf("%q is %d (%v), want %d", text, b, err, want)
		}
		var again Bytes
		if err := again.Set(b.String()); err != nil || again != b {
			t.Errorf("%q does not come back: %q is %d (%v)", text, b.String(), again, err)
		}
	}
	for _, text := range []string{"", "-1", "1K", "1.5Gi", "lots", "99999999999999999Gi"} {
		var b Bytes
		if err := b.Set(text); err == nil {
			t.Errorf("%q is accepted as %d", text, b)
		}
	}
}

func TestHelpAndVersion(t *testing.T) {
	for _, arg := range []string{"--help", "-h", "--version"} {
		var stdout, stderr bytes.Buffer
		fs := NewFlagSet("name", "What it is.", &stderr)
		done, err := Parse(fs, []string{arg}, &stdout)
		if !done || err != nil {
			t.Errorf("%s: done %v, error %v", arg, done, err)
		}
		if stdout.Len() == 0 || stderr.Len() > 0 {
			t.Errorf("%s: stdout %q, stderr %q", arg, stdout.String(), stderr.String())
		}
	}
}

// TestErrorsAreOneLine: an error names the flag and is not followed by the usage.
func TestErrorsAreOneLine(t *testing.T) {
	var stdout, stderr bytes.Buffer
	fs := NewFlagSet("name", "What it is.", &stderr)
	fs.Int("number", 1, "a number")
	_, err := Parse(fs, []string{"--number=many"}, &stdout)
	if err == nil || !strings.Contains(err.Error(), "number") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error is %v", err)
	}
	if stdout.Len()+stderr.Len() > 0 {
		t.Errorf("stdout %q, stderr %q", stdout.String(), stderr.String())
	}
}

func TestLogFlagsHaveTheirDefaults(t *testing.T) {
	fs := NewFlagSet("name", "What it is.", &bytes.Buffer{})
	AddLogging(fs)
	for name, want := range map[string]string{
		"v": "4", "vmodule": "", "logtostderr": "true", "alsologtostderr": "false", "alsologtostderrthreshold": "0",
		"stderrthreshold": "2", "legacy-stderr-threshold-behavior": "true", "log-dir": "", "log-file": "",
		"log-file-max-size": "1800", "log-backtrace-at": ":0", "add-dir-header": "false", "skip-headers": "false",
		"skip-log-headers": "false", "one-output": "false", "logging-format": "text",
	} {
		f := fs.Lookup(name)
		if f == nil {
			t.Errorf("--%s is not there", name)
			continue
		}
		if f.DefValue != want {
			t.Errorf("--%s defaults to %q, want %q", name, f.DefValue, want)
		}
		if f.Usage == "" {
			t.Errorf("--%s has no help text", name)
		}
	}
}

func TestPairNamesBothFlags(t *testing.T) {
	if err := Pair("cert", "", "key", "options.go"); err == nil || !strings.Contains(err.Error(), "--key=options.go: no such file") {
		// The file is looked for in the test's folder, where it is not.
		t.Errorf("error is %v", err)
	}
	if err := Pair("cert", "", "key", "doc.go"); err == nil || !strings.Contains(err.Error(), "--cert") {
		t.Errorf("error is %v", err)
	}
}
