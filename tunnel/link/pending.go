package link

import (
	"errors"
	"strings"

	"google.golang.org/grpc/mem"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// This file stands in for parts of package wire until they land.

var errPending = errors.New("package wire has no codec yet")

func marshal(*wire.Packet) (mem.BufferSlice, error)  { return nil, errPending }
func unmarshal(mem.BufferSlice, *wire.Packet) error { return errPending }

func extensionNames() []string {
	return []string{"credit", "half-close", "reason", "ping", "ready", "server-count", "drain"}
}

func formatExtensions(e wire.Extensions) string {
	var out []string
	for i, n := range extensionNames() {
		if e.Has(1 << i) {
			out = append(out, n)
		}
	}
	return strings.Join(out, ",")
}

func parseExtensions(list string) wire.Extensions {
	var e wire.Extensions
	for w := range strings.SplitSeq(list, ",") {
		for i, n := range extensionNames() {
			if strings.TrimSpace(w) == n {
				e |= 1 << i
			}
		}
	}
	return e
}
