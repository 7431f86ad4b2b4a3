package options

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/pflag"
)

// NewFlagSet returns an empty flag set for a binary whose usage name is name
// (COMPAT 3.0: "proxy" and "agent"), with --help and --version. Deprecation
// lines go to stderr.
func NewFlagSet(name, about string, stderr io.Writer) *pflag.FlagSet {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SortFlags = true
	fs.SetOutput(stderr)
	fs.Usage = func() {}
	fs.SetInterspersed(true)
	fs.BoolP("help", "h", false, "show this text and exit")
	fs.Bool("version", false, "show the version and exit")
	fs.SetAnnotation("help", "about", []string{about}) //nolint:errcheck // the flag exists: it was defined above
	return fs
}

// Parse reads args into fs. It returns true when the program has nothing more
// to do because help or the version was asked for and printed to stdout. An
// error is one line that names the flag. Positional arguments are accepted and
// ignored, as they always were.
func Parse(fs *pflag.FlagSet, args []string, stdout io.Writer) (done bool, err error) {
	switch err := parse(fs, args); {
	case errors.Is(err, errHelp):
		fmt.Fprint(stdout, Help(fs))
		return true, nil
	case errors.Is(err, errVersion):
		fmt.Fprintln(stdout, Version())
		return true, nil
	default:
		return false, err
	}
}

func parse(fs *pflag.FlagSet, args []string) error {
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return errHelp
		}
		return errors.New(strings.TrimSpace(err.Error()))
	}
	if on, err := fs.GetBool("help"); err == nil && on {
		return errHelp
	}
	if on, err := fs.GetBool("version"); err == nil && on {
		return errVersion
	}
	return nil
}

// Help is the text of --help.
func Help(fs *pflag.FlagSet) string {
	about := ""
	if f := fs.Lookup("help"); f != nil && len(f.Annotations["about"]) > 0 {
		about = f.Annotations["about"][0] + "\n\n"
	}
	return fmt.Sprintf("%sUsage:\n  %s [flags]\n\nFlags:\n%s", about, fs.Name(), fs.FlagUsagesWrapped(110))
}

// Version describes the build: the module's version or its commit, and Go's.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "culvert (no build information)"
	}
	text := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && (text == "" || text == "(devel)") {
			text = s.Value
		}
	}
	if text == "" || text == "(devel)" {
		text = "development"
	}
	return fmt.Sprintf("culvert %s %s", text, info.GoVersion)
}

// LogValues calls log once for each flag with its value, in order of name; at
// start both binaries write every option at verbosity 1. COMPAT 3.0.
func LogValues(fs *pflag.FlagSet, log func(name, value string)) {
	fs.VisitAll(func(f *pflag.Flag) { log(f.Name, f.Value.String()) })
}
