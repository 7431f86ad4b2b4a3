package options

import (
	"flag"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

// Logging holds the log flags (COMPAT 3.3) and --logging-format.
type Logging struct {
	format string
	klog   *flag.FlagSet
}

// AddLogging defines klog's flags on fs under their names with dashes, with the
// defaults of COMPAT 3.3 (verbosity 4), and --logging-format.
func AddLogging(fs *pflag.FlagSet) *Logging {
	l := &Logging{klog: flag.NewFlagSet("klog", flag.ContinueOnError)}
	klog.InitFlags(l.klog)
	l.klog.VisitAll(func(f *flag.Flag) {
		p := pflag.PFlagFromGoFlag(f)
		p.Name = strings.ReplaceAll(f.Name, "_", "-")
		p.Usage = logUsage(p.Name)
		if f.Name == "v" {
			p.Shorthand = "v"
			setDefault(p, "4")
		}
		fs.AddFlag(p)
	})
	fs.StringVar(&l.format, "logging-format", "text", "form of log lines on standard error: text (klog's) or json (one object a line)")
	return l
}

// setDefault changes both the value and what --help shows as the default.
func setDefault(p *pflag.Flag, value string) {
	if err := p.Value.Set(value); err == nil {
		p.DefValue = value
	}
}

// Validate checks the format.
func (l *Logging) Validate() error {
	return OneOf("logging-format", l.format, "text", "json")
}

// Logger makes the process's logger; stderr is where JSON lines go. Only main
// calls it: klog's own state belongs to the process. Repeated lines are limited.
func (l *Logging) Logger(stderr io.Writer) klog.Logger {
	if l.format != "json" {
		return Limited(klog.Background(), time.Now)
	}
	// klog filters by verbosity before it hands a line on, so slog lets all pass.
	handler := slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: slog.Level(-128)})
	klog.SetLoggerWithOptions(logr.FromSlogHandler(handler), klog.ContextualLogger(true))
	return Limited(klog.Background(), time.Now)
}

func logUsage(name string) string {
	switch name {
	case "v":
		return "verbosity of the log, a number; lines of a higher level are left out"
	case "vmodule":
		return "verbosity of single source files: a comma-separated list of pattern=N"
	case "logtostderr":
		return "log to standard error and not to files"
	case "alsologtostderr":
		return "log to standard error besides files"
	case "alsologtostderrthreshold":
		return "with --alsologtostderr, lowest severity that goes to standard error: 0 to 3, or INFO, WARNING, ERROR, FATAL"
	case "stderrthreshold":
		return "lowest severity that goes to standard error beside files: 0 to 3, or INFO, WARNING, ERROR, FATAL"
	case "legacy-stderr-threshold-behavior":
		return "let --logtostderr override --stderrthreshold, as it always did"
	case "log-dir":
		return "folder for log files (with --logtostderr=false)"
	case "log-file":
		return "one file for all log lines (with --logtostderr=false)"
	case "log-file-max-size":
		return "size in megabytes at which --log-file starts anew; 0 means never"
	case "log-backtrace-at":
		return "when a line at file:N is logged, add a stack trace"
	case "add-dir-header":
		return "write the folder of the source file into each line's header"
	case "skip-headers":
		return "leave out the header of each line"
	case "skip-log-headers":
		return "leave out the header of each log file"
	case "one-output":
		return "write each line to its own severity's file only"
	}
	return ""
}
