package fleet

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
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
	net    *tunneltest.Network
	ext    wire.Extensions
	secure *tls.Config // of servers; nil for none

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
	creds := insecure.NewCredentials()
	if c.secure != nil {
		creds = credentials.NewTLS(c.secure)
	}
	s.grpc = grpc.NewServer(grpc.Creds(creds), grpc.ForceServerCodecV2(link.Codec{}), grpc.WaitForHandlers(true), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
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

// realFleet is a fleet with real links to a cluster.
type realFleet struct {
	*Fleet
	c    *cluster
	stop func()
}

func (c *cluster) fleet(t *testing.T, dial func(context.Context, string) (net.Conn, error), hosts serverlink.DirectoryConfig) *realFleet {
	rooms := endpoint.New(endpoint.Config{}, nil, nil)
	creds := insecure.NewCredentials()
	if c.secure != nil {
		creds = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
	}
	connector := serverlink.New(serverlink.Config{
		AgentID: "a", Instance: "i", Extensions: wire.AllExtensions, Credentials: creds,
		Dial: dial, Keepalive: keepalive.ClientParameters{Time: 40 * time.Second, Timeout: 20 * time.Second},
	}, rooms, nil)
	f := &realFleet{c: c}
	received := servercounter.NewReceived(servercounter.ReceivedConfig{Changed: func() { f.Wake() }})
	f.Fleet = New(Config{SyncInterval: interval}, Deps{
		Connector: Using(connector),
		Directory: serverlink.NewDirectory(hosts),
		Counter:   servercounter.AtLeast(1, received), Received: received, Rooms: rooms,
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Run(ctx)
	}()
	f.stop = func() {
		cancel()
		<-done
		received.Close()
		c.scale(0)
		rooms.Close()
		synctest.Wait()
		if n := c.net.Open(); n != 0 {
			t.Errorf("%d connections left", n)
		}
	}
	return f
}

const interval = 200 * time.Millisecond

// scale makes n servers run, those with the lowest numbers.
func (c *cluster) scale(n int) {
	for i := c.running(); i > n; i-- {
		c.stop(fmt.Sprint("server", i-1))
	}
	for i := c.running(); i < n; i++ {
		c.start(fmt.Sprint("server", i))
	}
	c.announce(n)
	c.connected()
}

func (c *cluster) running() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.servers)
}

// TestRealCluster scales and rolls a cluster behind a load balancer under a
// fleet with real links.
func TestRealCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{net: tunneltest.NewNetwork(0), ext: wire.AllExtensions, servers: map[string]*grpcServer{}}
		f := c.fleet(t, c.dial, serverlink.DirectoryConfig{Hosts: []string{"192.0.2.1"}, Port: 8091})
		for _, n := range []int{1, 3, 5, 2, 0, 3} {
			c.scale(n)
			pass(90 * time.Second) // the answers of those that are gone are forgotten
			f.check(t, n)
			c.connected()
			pass(10 * time.Minute)
			f.check(t, n)
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
			f.check(t, 3)
		}
		f.stop()
	})
}

// TestRealClusterInDNS does the same with servers that are several answers of
// DNS: each has its link within two intervals, and nobody is met twice.
func TestRealClusterInDNS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{net: tunneltest.NewNetwork(0), ext: wire.AllExtensions, servers: map[string]*grpcServer{}}
		f := c.fleet(t, c.dialAddress, serverlink.DirectoryConfig{Hosts: []string{"servers"}, Port: 8091, Lookup: c.lookup})
		before := 0
		for _, n := range []int{1, 3, 5, 2, 0, 3} {
			c.scale(n)
			fresh := max(n-before, 0)
			before = n
			pass(time.Duration(fresh) * 2 * interval)
			f.check(t, n)
			if k := c.connected(); k != fresh {
				t.Errorf("%d connections to %d new servers", k, fresh)
			}
			pass(90 * time.Second) // the answers of those that are gone are forgotten
			c.connected()
			pass(10 * time.Minute)
			f.check(t, n)
			if k := c.connected(); k != 0 {
				t.Errorf("%d servers: %d connections in steady state", n, k)
			}
		}
		f.stop()
	})
}

// lookup answers with the address of every server that runs.
func (c *cluster) lookup(context.Context, string) (found []string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.servers {
		found = append(found, id)
	}
	if len(found) == 0 {
		return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
	}
	return found, nil
}

// dialHost connects to whoever listens under the host's name.
func (c *cluster) dialHost(ctx context.Context, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return c.net.Dialer("agent")(ctx, host)
}

// dialAddress connects to the server that has the address.
func (c *cluster) dialAddress(ctx context.Context, address string) (net.Conn, error) {
	id, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	known := c.servers[id] != nil
	if known {
		c.connects++
	}
	c.mu.Unlock()
	if !known {
		return nil, errRefused
	}
	return c.net.Dialer("agent")(ctx, id)
}

func (f *realFleet) check(t *testing.T, n int) {
	t.Helper()
	ready := f.c.readyLinks()
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
