package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// demoEndpoint is the sample workload: an HTTP server (GET / for a request, GET
// /bulk?bytes=N for a transfer, POST /bulk for one the other way) and an echo.
func demoEndpoint(ctx context.Context, args []string, std streams) error {
	flags := pflag.NewFlagSet("demo-endpoint", pflag.ContinueOnError)
	web := flags.String("http", "127.0.0.1:0", "address of the HTTP server")
	echo := flags.String("echo", "127.0.0.1:0", "address of the echo")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var config net.ListenConfig
	webListener, err := config.Listen(ctx, "tcp", *web)
	if err != nil {
		return err
	}
	echoListener, err := config.Listen(ctx, "tcp", *echo)
	if err != nil {
		webListener.Close()
		return err
	}
	server := &http.Server{Handler: demoWorkload(), ReadHeaderTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() {
		server.Close()
		echoListener.Close()
	})
	defer stop()
	fmt.Fprintln(std.out, webListener.Addr(), echoListener.Addr())
	go serveEcho(echoListener)
	if err := server.Serve(webListener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func serveEcho(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			io.Copy(conn, conn) //nolint:errcheck // a client that left is no news
		}()
	}
}

func demoWorkload() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello from behind the tunnel, %s\n", r.RemoteAddr)
	})
	mux.HandleFunc("GET /bulk", func(w http.ResponseWriter, r *http.Request) {
		size, err := strconv.ParseInt(r.URL.Query().Get("bytes"), 10, 64)
		if err != nil || size < 0 {
			http.Error(w, "bytes must be a number", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		io.Copy(w, io.LimitReader(pattern{}, size)) //nolint:errcheck // a client that left is no news
	})
	mux.HandleFunc("POST /bulk", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintln(w, n)
	})
	return mux
}

// pattern is an endless stream of bytes.
type pattern struct{}

func (pattern) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(i)
	}
	return len(p), nil
}
