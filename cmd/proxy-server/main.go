// Command proxy-server runs beside kube-apiserver: it takes its connections and
// carries them over the streams of proxy-agents to endpoints in the cluster.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"k8s.io/klog/v2"

	"github.com/culvert-proxy/culvert/internal/lifecycle"
	"github.com/culvert-proxy/culvert/internal/options"
	"github.com/culvert-proxy/culvert/internal/server"
)

func main() {
	// The second signal ends the process at once with status 1. COMPAT 7.8.
	ctx, stop := lifecycle.Signals(context.Background(), func() { os.Exit(1) })
	code := run(ctx, os.Args[1:], environment, os.Stdout, os.Stderr)
	stop()
	klog.Flush()
	os.Exit(code)
}

// run is main without the process around it; it returns the exit status.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	if err := serve(ctx, args, getenv, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "proxy-server:", err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	f := newFlags(stderr, getenv)
	if done, err := options.Parse(f.set, args, stdout); done || err != nil {
		return err
	}
	cfg, warnings, err := f.validate()
	if err != nil {
		return err
	}
	logger := f.logging.Logger(stderr)
	options.LogValues(f.set, func(name, value string) { logger.V(1).Info("option", "flag", name, "value", value) })
	for _, warning := range warnings {
		logger.Info("warning: " + warning)
	}
	s, err := server.New(cfg, server.Deps{Logger: logger})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}
