package agent

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"

	"github.com/culvert-proxy/culvert/internal/agent/nodeinfo"
	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// stage is an agent in fake time, a server that the test plays, and an API.
type stage struct {
	t      *testing.T
	net    *tunneltest.Network
	server *tunneltest.Server
	api    *fake.Clientset
	down   atomic.Bool // the API
	agent  *Agent
	stop   context.CancelFunc
	ended  chan error
}

// onStage runs an agent. first, if it is not nil, is the Node in the beginning;
// it is nil for agents that ask for none.
func onStage(t *testing.T, cfg Config, first *corev1.Node, f func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, net: tunneltest.NewNetwork(0), api: fake.NewClientset(), ended: make(chan error, 1)}
		s.server = tunneltest.Serve(t, s.net.Listen("server:8091"))
		if first != nil {
			s.put(first)
		}
		s.api.PrependReactor("get", "nodes", func(kubetesting.Action) (bool, runtime.Object, error) {
			return s.down.Load(), nil, errors.New("connection refused")
		})
		cfg.AgentID, cfg.ServerHosts, cfg.ServerPort, cfg.FlowBudget = "a", []string{"server"}, 8091, 1<<30
		var err error
		s.agent, err = New(cfg, Deps{
			Logger:     klog.Background(),
			DialServer: s.net.Dial,
			Lookup:     func(_ context.Context, host string) ([]string, error) { return []string{host}, nil },
			Nodes:      s.api.CoreV1(),
			NoPorts:    true,
		})
		if err != nil {
			t.Fatal(err)
		}
		f(s)
		s.stop()
		if err := <-s.ended; err != nil {
			t.Error(err)
		}
		s.server.Stop()
	})
}

func (s *stage) run() {
	var ctx context.Context
	ctx, s.stop = context.WithCancel(s.t.Context())
	go func() { s.ended <- s.agent.Run(ctx) }()
}

func node(zone string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{corev1.LabelTopologyZone: zone}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.7"}}}}
}

func (s *stage) put(n *corev1.Node) {
	s.t.Helper()
	err := s.api.Tracker().Add(n)
	if apierrors.IsAlreadyExists(err) {
		err = s.api.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), n, "")
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// accept takes the next link and checks what the agent presents on it, and shows.
func (s *stage) accept(presents, shows string) *tunneltest.ServerPeer {
	s.t.Helper()
	peer := s.server.AcceptAgent(link.ServerHello{ServerID: "s1", ServerCount: 1, Extensions: wire.AllExtensions})
	peer.Expect(wire.Ready)
	if got := peer.Agent.Identifiers; got != presents {
		s.t.Errorf("the agent presents %q, want %q", got, presents)
	}
	if got := s.agent.Status().Identifiers; got != shows {
		s.t.Errorf("the agent shows %q, want %q", got, shows)
	}
	return peer
}

// TestIdentifiersAreSentAsOldServersReadThem: whatever form the flag has.
func TestIdentifiersAreSentAsOldServersReadThem(t *testing.T) {
	const sent, shown = "host=a&cidr=10.1.0.0%2F16&ipv6=fd00%3A%3A1", "host=a&cidr=10.1.0.0/16&ipv6=fd00::1"
	for _, flag := range []string{
		"host=a&cidr=10.1.0.0/16&ipv6=[fd00::1]",
		"host=a&cidr=10.1.0.0%2F16&ipv6=fd00%3A%3A1",
		"host%3Da%26cidr%3D10.1.0.0%2F16%26ipv6%3Dfd00%3A%3A1",
	} {
		onStage(t, Config{Identifiers: flag}, nil, func(s *stage) {
			s.run()
			s.accept(sent, shown)
		})
	}
	if _, err := New(Config{Identifiers: "host=a,cidr=10.0.0.0/8"}, Deps{NoPorts: true}); err == nil || !strings.Contains(err.Error(), "--agent-identifiers") {
		t.Errorf("error %v", err)
	}
}

// TestIdentifiersFromANode are merged with the flag's, which win where only one
// value can be, and are read again for a link that takes the place of a lost one.
func TestIdentifiersFromANode(t *testing.T) {
	cfg := Config{Identifiers: "host=a", IdentifiersFromNode: "node-1", NodeParts: nodeinfo.Parts()}
	onStage(t, cfg, node("one"), func(s *stage) {
		s.run()
		peer := s.accept("host=a&ipv4=10.0.0.7&failure-zone=one", "host=a&ipv4=10.0.0.7&failure-zone=one")
		s.put(node("two"))
		peer.Close()
		peer = s.accept("host=a&ipv4=10.0.0.7&failure-zone=two", "host=a&ipv4=10.0.0.7&failure-zone=two")

		// The API is away: what was known holds.
		s.down.Store(true)
		s.put(node("three"))
		peer.Close()
		s.accept("host=a&ipv4=10.0.0.7&failure-zone=two", "host=a&ipv4=10.0.0.7&failure-zone=two")
	})
	cfg.Identifiers, cfg.NodeParts = "failure-zone=mine", []nodeinfo.Part{nodeinfo.Zone}
	onStage(t, cfg, node("theirs"), func(s *stage) {
		s.run()
		s.accept("failure-zone=mine", "failure-zone=mine")
	})
}

// TestNodeThatCannotBeReadYet: no link is made without its identifiers, and one
// is as soon as they are there.
func TestNodeThatCannotBeReadYet(t *testing.T) {
	cfg := Config{IdentifiersFromNode: "node-1", NodeParts: nodeinfo.Parts()}
	onStage(t, cfg, node("z"), func(s *stage) {
		s.down.Store(true)
		s.run()
		<-time.After(time.Minute)
		synctest.Wait()
		if n := s.server.Waiting(); n > 0 {
			s.t.Errorf("%d links without identifiers", n)
		}
		failures := s.agent.Status().Fleet.Failures
		if len(failures) == 0 || !strings.Contains(failures[0].Text, "--identifiers-from-node=node-1: cannot read Node node-1: connection refused") {
			s.t.Errorf("the status says %+v", failures)
		}
		s.down.Store(false)
		s.accept("ipv4=10.0.0.7&failure-zone=z", "ipv4=10.0.0.7&failure-zone=z")
	})
}

// TestRefusedNode: an agent that may not read its Node ends at once.
func TestRefusedNode(t *testing.T) {
	for _, c := range []struct {
		err  error
		says string
	}{
		{apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node-1", errors.New("no")), "verb get on the resource nodes"},
		{nil, "there is no Node node-1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			api := fake.NewClientset()
			api.PrependReactor("get", "nodes", func(kubetesting.Action) (bool, runtime.Object, error) { return c.err != nil, nil, c.err })
			a, err := New(Config{IdentifiersFromNode: "node-1", NodeParts: nodeinfo.Parts(), FlowBudget: 1 << 20}, Deps{
				DialServer: tunneltest.NewNetwork(0).Dial, Nodes: api.CoreV1(), NoPorts: true})
			if err != nil {
				t.Fatal(err)
			}
			err = a.Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), "--identifiers-from-node=node-1: ") || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want one that says %q", err, c.says)
			}
		})
	}
}

// TestNoWayToTheAPI is an error before anything runs.
func TestNoWayToTheAPI(t *testing.T) {
	_, err := New(Config{IdentifiersFromNode: "node-1"}, Deps{NoPorts: true})
	if err == nil || !strings.Contains(err.Error(), "--identifiers-from-node=node-1: no --kubeconfig") {
		t.Errorf("error %v", err)
	}
}
