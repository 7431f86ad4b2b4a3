package agent

import (
	"context"
	"fmt"
	"strings"

	"github.com/culvert-proxy/culvert/internal/agent/fleet"
	"github.com/culvert-proxy/culvert/internal/agent/nodeinfo"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// identifiers are what the agent presents to servers.
type identifiers struct {
	// Fixed after construction.
	configured wire.Identifiers
	node       *nodeinfo.Source // nil if no Node is asked
	name       string           // of the Node
}

// newIdentifiers prepares the sources of identifiers. It asks nobody yet.
func (a *Agent) newIdentifiers(deps Deps) error {
	configured, err := wire.ParseIdentifiers(a.cfg.Identifiers)
	if err != nil {
		return fmt.Errorf("--agent-identifiers: %w", err)
	}
	a.identifiers = identifiers{configured: configured, name: a.cfg.IdentifiersFromNode}
	if a.identifiers.name == "" {
		return nil
	}
	client := deps.Nodes
	if client == nil {
		api, err := a.cfg.Kube.REST()
		if err == nil {
			client, err = nodeinfo.NewClient(api)
		}
		if err != nil {
			return a.identifiers.wrap(err)
		}
	}
	a.identifiers.node = nodeinfo.New(nodeinfo.Config{
		Node:   a.cfg.IdentifiersFromNode,
		Parts:  a.cfg.NodeParts,
		Client: client,
		Logger: a.log,
	})
	return nil
}

func (i *identifiers) wrap(err error) error {
	return fmt.Errorf("--identifiers-from-node=%s: %w", i.name, err)
}

// first asks for the identifiers before the first attempt to connect. It is an
// error only if the API refuses: one that does not answer may do so later, and
// until then each attempt asks again, and fails.
func (i *identifiers) first(ctx context.Context) error {
	if i.node == nil {
		return nil
	}
	if _, err := i.node.Identifiers(ctx); err != nil && nodeinfo.Refused(err) {
		return i.wrap(err)
	}
	return nil
}

// encoded is what is presented in one attempt to connect. Where a key takes one
// value, that of the command line stays. Without the Node's identifiers the agent
// would be taken for one that serves other destinations, so there is no attempt
// before they are known.
func (i *identifiers) encoded(ctx context.Context) (string, error) {
	if i.node == nil {
		return i.configured.Encode(), nil
	}
	fromNode, err := i.node.Identifiers(ctx)
	if err != nil {
		return "", i.wrap(err)
	}
	return i.configured.Merge(fromNode).Encode(), nil
}

// shown is what was presented last, as far as it is known, in plain form.
func (i *identifiers) shown() string {
	ids := i.configured
	if i.node != nil {
		ids = ids.Merge(i.node.Known())
	}
	pairs := make([]string, len(ids.Pairs))
	for n, p := range ids.Pairs {
		pairs[n] = p.String()
	}
	return strings.Join(pairs, "&")
}

// refreshing passes on what a fleet tells, and has the Node asked again when a
// link has come or gone: what it says may be new by the next attempt.
type refreshing struct {
	fleet.Observer
	node *nodeinfo.Source
}

// Connected implements fleet.Observer.
func (r refreshing) Connected(links int) {
	r.node.Stale()
	r.Observer.Connected(links)
}

// fleetObserver is who is told the numbers of links.
func (a *Agent) fleetObserver() fleet.Observer {
	if a.identifiers.node == nil {
		return a.metrics.Fleet()
	}
	return refreshing{a.metrics.Fleet(), a.identifiers.node}
}
