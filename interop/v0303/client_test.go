package v0303

import (
	"os"
	"testing"

	"github.com/culvert-proxy/culvert/interop/suite"
)

func TestMain(m *testing.M) { os.Exit(suite.Main(m)) }

func TestPublicClient(t *testing.T) { suite.Public(t, "v0.30.3", nil) }
