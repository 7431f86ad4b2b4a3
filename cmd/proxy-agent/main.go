// Command proxy-agent runs in the cluster network: it connects to the
// proxy-servers and dials the endpoints that their clients ask for.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"k8s.io/klog/v2"

	"github.com/culvert-proxy/culvert/internal/agent"
	"github.com/culvert-proxy/culvert/internal/lifecycle"
	"github.com/culvert-proxy/culvert/internal/options"
)

func main() {
	// The second signal ends the process at once with status 0. COMPAT 6.6.
	ctx, stop := lifecycle.Signals(context.Background(), func() { os.Exit(0) })
	code := run(ctx, os.Args[1:], environment, os.Stdout, os.Stderr)
	stop()
	klog.Flush()
	os.Exit(code)
}

// run is main without the process around it; it returns the exit status.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	if err := serve(ctx, args, getenv, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "proxy-agent:", err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	f := newFlags(stderr, getenv)
	if done, err := options.Parse(f.set, args, stdout); done || err != nil {
		return err
	}
	cfg, err := f.validate()
	if err != nil {
		return err
	}
	logger := f.logging.Logger(stderr)
	options.LogValues(f.set, func(name, value string) { logger.V(1).Info("option", "flag", name, "value", value) })
	for _, pair := range f.decodedIdentifiers() {
		logger.Info("agent identifier", "key", pair.Key, "value", pair.Value)
	}
	a, err := agent.New(cfg, agent.Deps{Logger: logger})
	if err != nil {
		return err
	}
	return a.Run(ctx)
}
