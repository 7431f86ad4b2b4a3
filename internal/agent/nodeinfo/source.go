package nodeinfo

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

const (
	// readTimeout bounds one question. It is short, because an agent that has
	// lost its servers waits for it before it connects.
	readTimeout = 3 * time.Second
	// maxAge is how long an answer holds while no link comes or goes. An agent
	// that looks for a server which it does not find makes an attempt every
	// second, and must not ask the API as often, since every node may have one.
	maxAge = 30 * time.Second
)

// Config describes a Source. It is not changed after New.
type Config struct {
	Node   string // name of the Node object
	Parts  []Part
	Client coreclient.NodesGetter
	Logger klog.Logger
}

// Source knows the identifiers of one Node. Safe for concurrent use.
type Source struct {
	// Fixed after construction.
	cfg  Config
	turn chan struct{} // has room for the one that asks

	stale atomic.Bool
	known atomic.Pointer[wire.Identifiers] // the last good answer; nil before the first

	// Owned by the one that asks.
	asked time.Time // the answer in known, or a failure that left it as it was
}

// New returns a source that has asked nobody yet.
func New(cfg Config) *Source {
	return &Source{cfg: cfg, turn: make(chan struct{}, 1)}
}

// NewClient returns what reads Nodes from the API that api describes.
func NewClient(api *rest.Config) (coreclient.NodesGetter, error) { return coreclient.NewForConfig(api) }

// Stale makes the next call of Identifiers ask the API. Call it when a link
// comes or goes. It never blocks.
func (s *Source) Stale() { s.stale.Store(true) }

// Known is the last answer, or no identifiers before the first.
func (s *Source) Known() wire.Identifiers {
	if known := s.known.Load(); known != nil {
		return *known
	}
	return wire.Identifiers{}
}

// Identifiers is what the Node says, asked for now unless that was done a short
// time ago and nothing has happened since. A failure is an error only before the
// first answer; later the last one holds, because an agent that has lost the API
// is needed all the more.
func (s *Source) Identifiers(ctx context.Context) (wire.Identifiers, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return wire.Identifiers{}, ctx.Err()
	}
	known := s.known.Load()
	if known != nil && !s.stale.Load() && time.Since(s.asked) < maxAge {
		return *known, nil
	}
	s.stale.Store(false)
	fresh, err := s.read(ctx)
	switch {
	case ctx.Err() != nil:
		return wire.Identifiers{}, ctx.Err()
	case err == nil:
		s.asked = time.Now()
		s.note(known, fresh)
		s.known.Store(&fresh)
		return fresh, nil
	case known != nil:
		s.asked = time.Now()
		s.cfg.Logger.Error(err, "The identifiers of the Node cannot be read again; those that were read before stay")
		return *known, nil
	}
	return wire.Identifiers{}, err
}

// read asks the API. Resource version 0 lets it answer from its cache, which
// costs it next to nothing.
func (s *Source) read(ctx context.Context) (wire.Identifiers, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	node, err := s.cfg.Client.Nodes().Get(ctx, s.cfg.Node, metav1.GetOptions{ResourceVersion: "0"})
	if err != nil {
		return wire.Identifiers{}, s.explain(err)
	}
	ids, ignored := FromNode(node, s.cfg.Parts)
	for _, i := range ignored {
		s.cfg.Logger.Info("The Node has a value that is no identifier", "node", s.cfg.Node, "key", i.Key, "value", i.Value, "reason", i.Err.Error())
	}
	return ids, nil
}

// explain says what to do about an error of the API. The chain of err is kept.
func (s *Source) explain(err error) error {
	name := s.cfg.Node
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("the agent's account may not read Node %s; its role needs the verb get on the resource nodes: %w", name, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the Kubernetes API does not accept the agent's account, which must read Node %s: %w", name, err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no Node %s: %w", name, err)
	}
	return fmt.Errorf("cannot read Node %s: %w", name, err)
}

// Refused reports whether err, from Identifiers, is an answer of the API that
// stays the same until a person changes something.
func Refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err)
}

// note logs what is new, one line for each pair.
func (s *Source) note(known *wire.Identifiers, fresh wire.Identifiers) {
	if known != nil && slices.Equal(known.Pairs, fresh.Pairs) {
		return
	}
	if len(fresh.Pairs) == 0 {
		s.cfg.Logger.Info("The Node says nothing that is an identifier", "node", s.cfg.Node, "keys", Names(s.cfg.Parts))
	}
	for _, p := range fresh.Pairs {
		s.cfg.Logger.Info("agent identifier", "key", p.Key, "value", p.Value, "node", s.cfg.Node)
	}
}
