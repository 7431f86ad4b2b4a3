package golden

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// Help compares what run prints for --help with the file at path.
func Help(t *testing.T, path string, run func(stdout, stderr *bytes.Buffer) (code int)) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(&stdout, &stderr); code != 0 || stderr.Len() > 0 {
		t.Fatalf("exit status %d, standard error %q", code, stderr.String())
	}
	Compare(t, path, stdout.Bytes())
}

// KnownFlags checks that every name in the file at path, which lists those that
// manifests use, is a flag of set, and that every flag has a help text.
func KnownFlags(t *testing.T, path string, set *pflag.FlagSet) {
	t.Helper()
	known, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Fields(string(known))
	if len(names) < 40 {
		t.Fatalf("only %d names in %s", len(names), path)
	}
	for _, name := range names {
		if set.Lookup(name) == nil {
			t.Errorf("--%s is missing", name)
		}
	}
	set.VisitAll(func(flag *pflag.Flag) {
		if flag.Usage == "" {
			t.Errorf("--%s has no help text", flag.Name)
		}
	})
}

// Refusal is a command line that must be refused: the arguments in, the one
// line on standard error out.
type Refusal struct {
	Name string
	Args []string
	Want string
}

// Refused checks that run ends with status 1, one line that holds what is
// wanted, and nothing on standard output.
func Refused(t *testing.T, c Refusal, run func(args []string, stdout, stderr *bytes.Buffer) (code int)) {
	t.Run(c.Name, func(t *testing.T) {
		var stdout, stderr bytes.Buffer
		if code := run(c.Args, &stdout, &stderr); code != 1 {
			t.Errorf("exit status %d, want 1", code)
		}
		if got := stderr.String(); !strings.Contains(got, c.Want) || strings.Count(got, "\n") != 1 {
			t.Errorf("standard error is %q, want one line with %q", got, c.Want)
		}
		if stdout.Len() > 0 {
			t.Errorf("standard output is %q, want nothing", stdout.String())
		}
	})
}
