package nodeinfo

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2/textlogger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a source, the API that it asks, and its log.
type world struct {
	*Source
	api *fake.Clientset
	err error // of the API
	log bytes.Buffer
}

// inWorld runs f in fake time, with a Node or, if it is nil, without.
func inWorld(t *testing.T, node *corev1.Node, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{api: fake.NewClientset()}
		if node != nil {
			w.put(t, node)
		}
		w.api.ClearActions()
		w.api.PrependReactor("get", "nodes", func(kubetesting.Action) (bool, runtime.Object, error) { return w.err != nil, nil, w.err })
		w.Source = New(Config{Node: "node-1", Parts: Parts(), Client: w.api.CoreV1(), Logger: textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&w.log)))})
		f(t, w)
	})
}

func (w *world) put(t *testing.T, node *corev1.Node) {
	t.Helper()
	if err := w.api.Tracker().Add(node); apierrors.IsAlreadyExists(err) {
		err = w.api.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, "")
		if err != nil {
			t.Fatal(err)
		}
	} else if err != nil {
		t.Fatal(err)
	}
}

// wantZone asks, and checks the answer's zone and how often the API was asked.
func (w *world) wantZone(t *testing.T, zone string, asked int) {
	t.Helper()
	ids, err := w.Identifiers(t.Context())
	if err != nil || ids.FailureZone != zone || w.Known().FailureZone != zone {
		t.Errorf("zone %q, known %q, error %v; want %q", ids.FailureZone, w.Known().FailureZone, err, zone)
	}
	if n := len(w.api.Actions()); n != asked {
		t.Errorf("the API was asked %d times, want %d", n, asked)
	}
}

func inZone(zone string) *corev1.Node {
	node := aNode()
	node.Labels[corev1.LabelTopologyZone] = zone
	return node
}

// TestAnswersHoldUntilALinkComesOrGoes, or for half a minute.
func TestAnswersHoldUntilALinkComesOrGoes(t *testing.T) {
	inWorld(t, inZone("a"), func(t *testing.T, w *world) {
		w.wantZone(t, "a", 1)
		w.put(t, inZone("b"))
		w.wantZone(t, "a", 1)
		w.Stale()
		w.wantZone(t, "b", 2)
		w.put(t, inZone("c"))
		<-time.After(maxAge - time.Second)
		w.wantZone(t, "b", 2)
		<-time.After(time.Second)
		w.wantZone(t, "c", 3)
	})
}

// TestPairsAreLoggedWhenTheyAreNew, each on its own line.
func TestPairsAreLoggedWhenTheyAreNew(t *testing.T) {
	inWorld(t, inZone("a"), func(t *testing.T, w *world) {
		w.wantZone(t, "a", 1)
		for _, want := range []string{`key="ipv4" value="10.0.0.7"`, `key="cidr" value="fd00:1:4::/64"`, `key="host" value="node-1"`, `key="failure-zone" value="a"`} {
			lines := 0
			for line := range strings.Lines(w.log.String()) {
				if strings.Contains(line, want) && strings.Count(line, "value=") == 1 {
					lines++
				}
			}
			if lines != 1 {
				t.Errorf("%s is on %d lines of the log:\n%s", want, lines, w.log.String())
			}
		}
		w.log.Reset()
		w.Stale()
		w.wantZone(t, "a", 2)
		if w.log.Len() > 0 {
			t.Errorf("nothing is new, but the log says:\n%s", w.log.String())
		}
		node := inZone("a")
		node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, "soon")
		w.put(t, node)
		w.Stale()
		w.wantZone(t, "a", 3)
		if !strings.Contains(w.log.String(), `key="cidr" value="soon"`) {
			t.Errorf("a value that is no identifier is not in the log:\n%s", w.log.String())
		}
	})
}

// TestWithoutAccess: each refusal says what to do about it.
func TestWithoutAccess(t *testing.T) {
	nodes := schema.GroupResource{Resource: "nodes"}
	for _, c := range []struct {
		name    string
		err     error
		says    string
		refused bool
	}{
		{"forbidden", apierrors.NewForbidden(nodes, "node-1", errors.New("no")), "verb get on the resource nodes", true},
		{"unauthorized", apierrors.NewUnauthorized("no"), "does not accept the agent's account", true},
		{"not found", nil, "there is no Node node-1", true},
		{"unreachable", errors.New("connection refused"), "cannot read Node node-1: connection refused", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				w.err = c.err
				for range 2 { // no answer yet: each call asks
					_, err := w.Identifiers(t.Context())
					if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") || Refused(err) != c.refused {
						t.Errorf("error %v (refused: %v), want one that says %q", err, Refused(err), c.says)
					}
				}
				if n := len(w.api.Actions()); n != 2 {
					t.Errorf("asked %d times", n)
				}
				if len(w.Known().Pairs) > 0 {
					t.Errorf("known: %v", w.Known().Pairs)
				}
			})
		})
	}
}

// TestLaterFailuresKeepTheLastAnswer, and are not repeated at each attempt.
func TestLaterFailuresKeepTheLastAnswer(t *testing.T) {
	inWorld(t, inZone("a"), func(t *testing.T, w *world) {
		w.wantZone(t, "a", 1)
		w.err = errors.New("no route to host")
		w.Stale()
		w.wantZone(t, "a", 2)
		if !strings.Contains(w.log.String(), "no route to host") {
			t.Errorf("the log does not say why:\n%s", w.log.String())
		}
		w.wantZone(t, "a", 2)
		w.err = nil
		w.put(t, inZone("b"))
		<-time.After(maxAge)
		w.wantZone(t, "b", 3)
	})
}

// TestSilentAPI: one question costs its limit, and one at a time is asked.
func TestSilentAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		s := New(Config{Node: "node-1", Parts: Parts(), Client: silent{asked: &asked}})
		began := time.Now()
		second := make(chan error, 1)
		go func() {
			<-time.After(time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := s.Identifiers(ctx)
			second <- err
		}()
		if _, err := s.Identifiers(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if took := time.Since(began); took != readTimeout {
			t.Errorf("took %v", took)
		}
		if err := <-second; !errors.Is(err, context.DeadlineExceeded) || asked.Load() != 1 {
			t.Errorf("the second one: %v, asked %d times", err, asked.Load())
		}
	})
}

// TestOverTheWire reads a Node from something that speaks HTTP.
func TestOverTheWire(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/api/v1/nodes/node-1" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"node-1","labels":{"topology.kubernetes.io/zone":"z"}}}`))
	}))
	defer server.Close()
	transport := &http.Transport{DisableKeepAlives: true}
	client, err := NewClient(&rest.Config{Host: server.URL, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	ids, err := New(Config{Node: "node-1", Parts: Parts(), Client: client}).Identifiers(t.Context())
	if err != nil || ids.Encode() != "failure-zone=z" {
		t.Errorf("%q, %v", ids.Encode(), err)
	}
}
