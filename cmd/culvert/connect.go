package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	"github.com/culvert-proxy/culvert/tunnel/client"
)

const connectUsage = `Usage:
  culvert connect HOST:PORT [flags]

Joins standard input and output to a tunnel through a running proxy-server, for
instance as an ssh ProxyCommand. It ends when the endpoint has closed, and not
before everything that it read from standard input has been delivered.

Flags:
`

type connectFlags struct {
	mode, socket, server string
	ca, cert, key        string
	timeout              time.Duration
}

// connect joins standard input and output to a tunnel.
func connect(ctx context.Context, args []string, std streams) error {
	var f connectFlags
	flags := pflag.NewFlagSet("culvert connect", pflag.ContinueOnError)
	flags.SetOutput(std.err)
	flags.Usage = func() { fmt.Fprint(std.err, connectUsage, flags.FlagUsages()) }
	flags.StringVar(&f.mode, "mode", "grpc", "frontend protocol of the server: grpc or http-connect")
	flags.StringVar(&f.socket, "uds-name", "", "path of the server's Unix socket")
	flags.StringVar(&f.server, "server", "", "host:port of the server's TCP frontend; needs --ca-cert, --cert and --key")
	flags.StringVar(&f.ca, "ca-cert", "", "CA file that the server's certificate must chain to")
	flags.StringVar(&f.cert, "cert", "", "client certificate file")
	flags.StringVar(&f.key, "key", "", "key file of --cert")
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "limit of connecting")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil
		}
		return err
	}
	if flags.NArg() != 1 {
		flags.Usage()
		return errUsage
	}
	address := flags.Arg(0)
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("%s: must be HOST:PORT", address)
	}
	to, err := f.target()
	if err != nil {
		return err
	}
	conn, err := f.dial(ctx, to, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	return join(ctx, conn, std)
}

func (f connectFlags) target() (target, error) {
	switch {
	case f.mode != "grpc" && f.mode != "http-connect":
		return target{}, fmt.Errorf("--mode=%s: must be one of: grpc, http-connect", f.mode)
	case f.socket != "" && f.server != "":
		return target{}, errors.New("--uds-name and --server exclude each other")
	case f.socket != "":
		return target{socket: f.socket}, nil
	case f.server == "":
		return target{}, errors.New("one of --uds-name and --server is needed")
	}
	conf, err := clientTLS(f.ca, f.cert, f.key, f.server)
	return target{address: f.server, tls: conf}, err
}

func (f connectFlags) dial(ctx context.Context, to target, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	if f.mode == "http-connect" {
		return dialConnect(ctx, to, address)
	}
	tunnel, err := client.NewSingleUse(ctx, to.name(), client.Options{}, to.options()...)
	if err != nil {
		return nil, err
	}
	return tunnel.DialContext(ctx, "tcp", address)
}

// name is the server as the client library knows it.
func (to target) name() string {
	if to.socket != "" {
		return "unix://" + to.socket
	}
	return to.address
}

func (to target) options() []grpc.DialOption {
	if to.tls == nil {
		return nil
	}
	return []grpc.DialOption{client.WithTLS(to.tls)}
}

// join copies both ways. The end of standard input half-closes, so that an
// answer that comes only after it still arrives; where a half-close cannot be
// carried the endpoint has to end by itself.
func join(ctx context.Context, conn net.Conn, std streams) error {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	sent := make(chan error, 1)
	go func() {
		_, err := io.Copy(conn, std.in)
		if half, ok := conn.(interface{ CloseWrite() error }); ok && err == nil {
			if err = half.CloseWrite(); errors.Is(err, errors.ErrUnsupported) {
				err = nil
			}
		}
		sent <- err
	}()
	_, err := io.Copy(std.out, conn)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		err = delivered(ctx, conn)
	}
	select {
	case sendErr := <-sent:
		return errors.Join(err, ignoreClosed(sendErr))
	default: // standard input has more, and nobody to give it to
		return err
	}
}

// delivered waits until what was written has left this process and its close was
// answered: exiting earlier could lose it.
func delivered(ctx context.Context, conn net.Conn) error {
	tunnel, ok := conn.(*client.Conn)
	if !ok {
		return conn.Close() // the kernel delivers what a socket took
	}
	return tunnel.CloseContext(ctx)
}

// ignoreClosed drops the error of writing to an endpoint that has closed in order.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return err
}

// tunnels is one gRPC connection for many dials.
type tunnels struct{ reusable *client.Reusable }

func openTunnels(_ context.Context, to target) (*tunnels, error) {
	reusable, err := client.NewReusable(to.name(), client.Options{}, to.options()...)
	return &tunnels{reusable}, err
}

func (t *tunnels) dial(ctx context.Context, address string) (net.Conn, error) {
	return t.reusable.DialContext(ctx, "tcp", address)
}

func (t *tunnels) close() { _ = t.reusable.Close() }
