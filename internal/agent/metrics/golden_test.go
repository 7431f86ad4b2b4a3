package metrics

import (
	"testing"

	"github.com/culvert-proxy/culvert/internal/golden"
)

// Every metric that Konnectivity's agent has is there from the start, with its
// labels, and no other carries its prefix.
func TestUpstreamNames(t *testing.T) {
	golden.Names(t, "testdata/upstream.txt", prefix, New().Gatherer())
}

// TestGoldenStart holds every series that is there at the start, with its type,
// its help and its value; the runtime's own are left out.
func TestGoldenStart(t *testing.T) {
	golden.Series(t, "testdata/start.txt", New().Gatherer(), prefix, ownPrefix)
}

func TestHandler(t *testing.T) {
	golden.Exposition(t, New().Handler(), prefix+"open_server_connections")
}
