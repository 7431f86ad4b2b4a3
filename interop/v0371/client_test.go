package v0371

import (
	"context"
	"os"
	"testing"

	"google.golang.org/grpc"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"

	"github.com/culvert-proxy/culvert/interop/suite"
)

func TestMain(m *testing.M) { os.Exit(suite.Main(m)) }

func TestPublicClient(t *testing.T) {
	suite.Public(t, "v0.37.1", func(ctx context.Context, address string, options ...grpc.DialOption) (suite.ReusableTunnel, error) {
		return client.CreateGRPCTunnel(ctx, address, options...)
	})
}

// What does not depend on the library is run here only.
func TestOtherClients(t *testing.T) { suite.Others(t) }
func TestOurClient(t *testing.T)    { suite.Ours(t) }
func TestCurl(t *testing.T)         { suite.Curl(t) }
