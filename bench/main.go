// Command bench measures Culvert against a yardstick in the same run and prints
// one table with every budget. It starts what it needs as processes on loopback
// and ends them. With one of the words endpoint, relay-near, relay-far or
// forwarder as its first argument it is one of those processes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		return role(ctx, args[0], args[1:])
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	bin := flags.String("bin", "../bin", "folder of proxy-server and proxy-agent")
	size := flags.Int64("size", 2<<30, "bytes of each bulk transfer")
	only := flags.String("only", "", "measure only rows whose group is in this comma-separated list: bulk, latency, churn, neighbour, slow, long, idle, links, pick")
	strict := flags.Bool("strict", false, "exit 1 when a figure is missing or beyond twice its budget")
	if err := flags.Parse(args); err != nil {
		return err
	}
	t, err := measure(ctx, *bin, *size, func(group string) bool {
		return *only == "" || strings.Contains(","+*only+",", ","+group+",")
	})
	if err != nil {
		return err
	}
	t.print(os.Stdout)
	if *strict && t.bad() {
		return errors.New("a figure is missing or beyond twice its budget")
	}
	return nil
}

func measure(ctx context.Context, bin string, size int64, want func(group string) bool) (*table, error) {
	s, err := newStage(ctx, bin)
	if s != nil {
		defer s.close()
	}
	if err != nil {
		return nil, err
	}
	if s.connect, err = s.startCulvert(ctx, "http-connect", nil); err != nil {
		return nil, err
	}
	if s.grpc, err = s.startCulvert(ctx, "grpc", nil); err != nil {
		return nil, err
	}
	t := &table{}
	for _, group := range []struct {
		name string
		rows func()
	}{
		{"bulk", func() { s.bulkRows(ctx, t, size) }},
		{"latency", func() { s.latencyRow(ctx, t) }},
		{"churn", func() { s.churnRows(ctx, t) }},
		{"neighbour", func() { s.neighbourRow(ctx, t) }},
		{"slow", func() { s.slowLinkRow(ctx, t) }},
		{"long", func() { s.longLinkRow(ctx, t) }},
		{"idle", func() { s.idleRows(ctx, t) }},
		{"links", func() { s.linksRow(ctx, t) }},
		{"pick", func() { pickRows(t) }},
	} {
		if want(group.name) && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "bench: measuring", group.name)
			group.rows()
		}
	}
	return t, ctx.Err()
}

// role runs one of the helper processes until ctx ends.
func role(ctx context.Context, name string, args []string) error {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	address := flags.String("listen", "", "where to listen")
	target := flags.String("target", "", "where to connect")
	cert := flags.String("cert", "", "certificate file")
	key := flags.String("key", "", "key file")
	ca := flags.String("ca", "", "CA file")
	megabits := flags.Float64("megabits", 100, "rate of the link")
	roundTrip := flags.Duration("round-trip", 50*time.Millisecond, "round trip of the link")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch name {
	case "endpoint":
		return endpoint(ctx, *address)
	case "forwarder":
		return forward(ctx, *address, *target, path{*megabits * 125000, *roundTrip})
	case "relay-near", "relay-far":
		conf, err := mutualTLS(*cert, *key, *ca)
		if err != nil {
			return err
		}
		if name == "relay-near" {
			return relayNear(ctx, *address, *target, conf)
		}
		return relayFar(ctx, *address, *target, conf)
	}
	return fmt.Errorf("no role %q", name)
}
