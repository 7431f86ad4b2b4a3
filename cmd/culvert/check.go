package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

const checkUsage = `Usage:
  culvert check [--server=URL] DESTINATION

Asks the admin port of a running proxy-server which backend manager and which
agents would serve a dial to DESTINATION, as HOST:PORT or HOST, and why the others
would not. Nothing is dialled.

The exit status is 0 if an agent would serve it, 1 if none would, and 2 if the
server could not be asked.

Flags:
`

// What check exits with, beside 0.
const (
	exitNobody  = 1
	exitTrouble = 2
)

// check asks a server who would serve a destination.
func check(ctx context.Context, args []string, std streams) error {
	flags := pflag.NewFlagSet("culvert check", pflag.ContinueOnError)
	flags.SetOutput(std.err)
	flags.Usage = func() { fmt.Fprint(std.err, checkUsage, flags.FlagUsages()) }
	server := flags.String("server", "http://127.0.0.1:8095", "URL of the server's admin port")
	timeout := flags.Duration("timeout", 10*time.Second, "limit of asking")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil
		}
		return failure{exitTrouble, err}
	}
	if flags.NArg() != 1 || flags.Arg(0) == "" {
		flags.Usage()
		return errUsage
	}
	page, err := checkPage(*server, flags.Arg(0))
	if err != nil {
		return failure{exitTrouble, err}
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	served, text, err := ask(ctx, page)
	if err != nil {
		return failure{exitTrouble, err}
	}
	fmt.Fprint(std.out, text)
	if !served {
		return failure{status: exitNobody}
	}
	return nil
}

// checkPage is the URL that explains destination on the admin port server, a URL
// or host:port.
func checkPage(server, destination string) (string, error) {
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	page, err := url.Parse(server)
	if err != nil {
		return "", fmt.Errorf("--server: %w", err)
	}
	if page.Host == "" || page.Scheme != "http" && page.Scheme != "https" {
		return "", fmt.Errorf("--server=%s: must be a URL such as http://127.0.0.1:8095", server)
	}
	page = page.JoinPath("checkz")
	page.RawQuery = url.Values{"address": {destination}}.Encode()
	return page.String(), nil
}

// maxExplanation bounds what is read of an answer, in bytes. A server names a
// bounded number of agents.
const maxExplanation = 16 << 20

// ask fetches an explanation.
func ask(ctx context.Context, page string) (served bool, text string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return false, "", fmt.Errorf("--server: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxExplanation))
	if err != nil {
		return false, "", fmt.Errorf("%s: %w", page, err)
	}
	serving := response.Header.Get("Culvert-Serving")
	if serving == "" {
		return false, "", fmt.Errorf("%s: %s: is this the admin port of a proxy-server?", page, response.Status)
	}
	return serving != "none", string(body), nil
}
