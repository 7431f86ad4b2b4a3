// Command culvert is for people: it demonstrates a whole installation on one
// machine (demo), joins standard input and output to a tunnel (connect) and says
// which agents would serve a destination (check).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/culvert-proxy/culvert/internal/lifecycle"
	"github.com/culvert-proxy/culvert/internal/options"
)

const usage = `Usage:
  culvert demo [--once] [--help]
      run servers for both frontends, agents and an endpoint on this machine, with traffic
  culvert connect HOST:PORT [flags]
      join standard input and output to a tunnel through a running server
  culvert check [--server=URL] DESTINATION
      say which agents of a running server would serve a destination, and why the others would not
  culvert version
`

// streams are a command's standard files.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

func main() {
	ctx, stop := lifecycle.Signals(context.Background(), func() { os.Exit(1) })
	code := run(ctx, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr})
	stop()
	os.Exit(code)
}

// errUsage ends a command whose usage was printed.
var errUsage = errors.New("usage")

// failure is an error of a command that has exit statuses of its own.
type failure struct {
	status int
	err    error // nil if everything was said
}

// Error implements error.
func (f failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit status %d", f.status)
	}
	return f.err.Error()
}

// run is main without the process around it; it returns the exit status.
func run(ctx context.Context, args []string, std streams) int {
	err := command(ctx, args, std)
	var own failure
	switch {
	case errors.As(err, &own):
		if own.err != nil {
			fmt.Fprintln(std.err, "culvert:", own.err)
		}
		return own.status
	case err == nil:
		return 0
	case errors.Is(err, errUsage):
		return 2
	default:
		fmt.Fprintln(std.err, "culvert:", err)
		return 1
	}
}

func command(ctx context.Context, args []string, std streams) error {
	if len(args) == 0 {
		fmt.Fprint(std.err, usage)
		return errUsage
	}
	switch args[0] {
	case "demo":
		return demo(ctx, args[1:], std)
	case "demo-endpoint": // the demo's endpoint is this program in a process of its own
		return demoEndpoint(ctx, args[1:], std)
	case "connect":
		return connect(ctx, args[1:], std)
	case "check":
		return check(ctx, args[1:], std)
	case "version", "--version":
		fmt.Fprintln(std.out, options.Version())
		return nil
	case "help", "--help", "-h":
		fmt.Fprint(std.out, usage)
		return nil
	}
	fmt.Fprintf(std.err, "culvert: no command %q\n%s", args[0], usage)
	return errUsage
}
