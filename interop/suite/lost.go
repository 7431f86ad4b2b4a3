package suite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	public "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"

	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// The first bytes of an endpoint that speaks first, and their end.
const (
	lostID    = wire.ConnectionID(7)
	firstText = "first"
	restText  = " and the rest"
)

// LostBytes shows what the library does with DATA that comes before its caller
// has registered the connection: the fact on which a server that loses nothing
// can build. It answers DATA for a connection that it does not know with
// CLOSE_REQ, in the order in which the packets came, and goes on. So DATA with an
// ID that nobody has, sent behind a chunk, is always answered, and the chunk was
// lost if and only if its own ID was answered before that.
func LostBytes(t *testing.T) {
	const dials = 600
	var resent, most atomic.Int64
	server := grpc.NewServer(grpc.ForceServerCodecV2(link.Codec{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		n, err := sendWhole(stream)
		resent.Add(n)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		return err
	}))
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() { server.Serve(listener) })
	defer served.Wait()
	defer server.Stop()
	s := &stage{T: t}
	s.parallel(dials, 60, func(int) error {
		ctx, cancel := context.WithTimeout(context.Background(), hangLimit)
		defer cancel()
		tunnel, err := public.CreateSingleUseGrpcTunnelWithContext(ctx, context.Background(), "unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		c, err := tunnel.DialContext(ctx, "tcp", "x:1")
		if err != nil {
			return err
		}
		defer time.AfterFunc(hangLimit, func() { c.Close() }).Stop()
		got, err := io.ReadAll(c)
		if string(got) != firstText+restText {
			return fmt.Errorf("read %q, %v", got, err)
		}
		return err
	})
	t.Logf("%d dials, the first chunk sent again %d times, at most %d times on one", dials, resent.Load(), most.Load())
}

// sendWhole plays a server whose endpoint speaks first, and reports how often it
// had to send the first chunk again.
func sendWhole(stream grpc.ServerStream) (resent int64, err error) {
	var p wire.Packet
	if err := stream.RecvMsg(&p); err != nil {
		return 0, err
	}
	send := func(p wire.Packet) {
		err = errors.Join(err, stream.SendMsg(&p))
	}
	data := func(id wire.ConnectionID, text string) {
		send(wire.Packet{Type: wire.Data, ConnectionID: id, Payload: wire.PayloadBytes([]byte(text))})
	}
	send(wire.Packet{Type: wire.DialResponse, DialID: p.DialID, ConnectionID: lostID})
	pause := time.NewTimer(0)
	defer pause.Stop()
	for ; err == nil; resent++ {
		probe := wire.ConnectionID(-1 - resent)
		data(lostID, firstText)
		data(probe, "?")
		lost := false
		for p.ConnectionID = 0; p.ConnectionID != probe && err == nil; {
			err = stream.RecvMsg(&p)
			lost = lost || p.ConnectionID == lostID
		}
		if !lost {
			break
		}
		pause.Reset(time.Millisecond << min(resent, 6))
		<-pause.C
	}
	data(lostID, restText)
	send(wire.Packet{Type: wire.CloseResponse, ConnectionID: lostID})
	return resent, err
}
