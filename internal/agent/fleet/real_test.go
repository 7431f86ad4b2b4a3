package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/culvert-proxy/culvert/internal/agent/endpoint"
	"github.com/culvert-proxy/culvert/internal/agent/serverlink"
	"github.com/culvert-proxy/culvert/internal/servercounter"
	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// cluster is real gRPC servers behind a load balancer that picks at random.
type cluster struct {
	net *tunneltest.Network
	ext wire.Extensions

	mu       sync.Mutex
	count    int
	servers  map[string]*grpcServer
	connects int
}

// grpcServer takes agents' links and counts those that are kept.
type grpcServer struct {
	id   string
	grpc *grpc.Server
	done chan struct{}

	mu    sync.Mutex
	ready map[*link.Link]bool
}

func (c *cluster) start(id string) {
	s := &grpcServer{id: id, done: make(chan struct{}), ready: map[*link.Link]bool{}}
	s.grpc = grpc.NewServer(grpc.ForceServerCodecV2(link.Codec{}), grpc.WaitForHandlers(true), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		return c.serve(s, stream)
	}))
	l := c.net.Listen(id)
	go func() {
		defer close(s.done)
		_ = s.grpc.Serve(l)
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers[id] = s
}

func (c *cluster) serve(s *grpcServer, stream grpc.ServerStream) error {
	c.mu.Lock()
	hello := link.ServerHello{ServerID: s.id, ServerCount: c.count, Extensions: c.ext}
	c.mu.Unlock()
	if err := stream.SendHeader(hello.Metadata()); err != nil {
		return err
	}
	l := link.New(link.Config{Stream: stream, Extensions: c.ext})
	written := make(chan struct{})
	go func() {
		defer close(written)
		_ = l.Run()
	}()
	defer func() {
		l.Close(nil)
		<-written
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.ready, l)
	}()
	for {
		var p wire.Packet
		if err := l.Recv(&p); err != nil {
			return nil
		}
		if p.Type == wire.Ready {
			s.mu.Lock()
			s.ready[l] = true
			s.mu.Unlock()
		}
		p.Payload.Free()
	}
}

func (c *cluster) stop(id string) {
	c.mu.Lock()
	s := c.servers[id]
	delete(c.servers, id)
	c.mu.Unlock()
	s.grpc.Stop()
	<-s.done
}

// announce changes the count and pushes it over live links.
func (c *cluster) announce(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count = n
	for _, s := range c.servers {
		s.mu.Lock()
		for l := range s.ready {
			l.Send(wire.Packet{Type: wire.ServerCount, Count: int64(n)})
		}
		s.mu.Unlock()
	}
}

// dial is the load balancer.
func (c *cluster) dial(ctx context.Context, _ string) (net.Conn, error) {
	c.mu.Lock()
	c.connects++
	ids := make([]string, 0, len(c.servers))
	for id := range c.servers {
		ids = append(ids, id)
	}
	c.mu.Unlock()
	if len(ids) == 0 {
		return nil, errRefused
	}
	return c.net.Dialer("agent")(ctx, ids[rand.IntN(len(ids))])
}

func (c *cluster) connected() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.connects
	c.connects = 0
	return n
}

// readyLinks is how many kept links each server has.
func (c *cluster) readyLinks() map[string]int {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	n := map[string]int{}
	for id, s := range c.servers {
		s.mu.Lock()
		n[id] = len(s.ready)
		s.mu.Unlock()
	}
	return n
}

// TestRealCluster scales and rolls a cluster behind a load balancer under a
// fleet with real links.
func TestRealCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{net: tunneltest.NewNetwork(0), ext: wire.AllExtensions, servers: map[string]*grpcServer{}}
		rooms := endpoint.New(endpoint.Config{}, nil, nil)
		connector := serverlink.New(serverlink.Config{
			AgentID: "a", Instance: "i", Extensions: wire.AllExtensions, Credentials: insecure.NewCredentials(),
			Dial: c.dial, Keepalive: keepalive.ClientParameters{Time: 40 * time.Second, Timeout: 20 * time.Second},
		}, rooms, nil)
		var f *Fleet
		received := servercounter.NewReceived(servercounter.ReceivedConfig{Changed: func() { f.Wake() }})
		f = New(Config{SyncInterval: 200 * time.Millisecond}, Deps{
			Connector: Using(connector),
			Directory: serverlink.NewDirectory(serverlink.DirectoryConfig{Hosts: []string{"192.0.2.1"}, Port: 8091}),
			Counter:   servercounter.AtLeast(1, received), Received: received, Rooms: rooms,
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.Run(ctx)
		}()

		running := 0
		for _, n := range []int{1, 3, 5, 2, 0, 3} {
			for running > n {
				running--
				c.stop(fmt.Sprint("server", running))
			}
			for running < n {
				c.start(fmt.Sprint("server", running))
				running++
			}
			c.announce(n)
			c.connected()
			pass(90 * time.Second) // the answers of those that are gone are forgotten
			checkLinks(t, c, f, n)
			c.connected()
			pass(10 * time.Minute)
			checkLinks(t, c, f, n)
			if k := c.connected(); n > 0 && k != 0 {
				t.Errorf("%d servers: %d connections in steady state", n, k)
			}
		}
		for i := range 3 { // a rolling restart
			id := fmt.Sprint("server", i)
			c.stop(id)
			pass(5 * time.Second)
			c.start(id)
			pass(15 * time.Second)
			checkLinks(t, c, f, 3)
		}
		cancel()
		<-done
		received.Close()
		for i := range 3 {
			c.stop(fmt.Sprint("server", i))
		}
		rooms.Close()
		synctest.Wait()
		if n := c.net.Open(); n != 0 {
			t.Errorf("%d connections left", n)
		}
	})
}

func checkLinks(t *testing.T, c *cluster, f *Fleet, n int) {
	t.Helper()
	ready := c.readyLinks()
	for id, k := range ready {
		if k != 1 {
			t.Errorf("%d servers: %s has %d links", n, id, k)
		}
	}
	var ids []string
	for _, l := range f.Status().Links {
		ids = append(ids, l.ServerID)
	}
	if len(ready) != n || len(ids) != n || !slices.IsSorted(ids) {
		t.Errorf("%d servers: ready %v, links %v", n, ready, ids)
	}
}
