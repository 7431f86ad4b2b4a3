package lease

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"
)

// How the publisher goes on after a failure. COMPAT 7.5.
const (
	backoffFirst  = 200 * time.Millisecond
	backoffMost   = 7 * time.Second
	triesAtOnce   = 5 // after conflicts
	renewalJitter = 0.04
)

// PublisherConfig is the configuration of a Publisher.
type PublisherConfig struct {
	Client    coordinationclient.LeasesGetter
	Namespace string
	ServerID  string
	// Labels replace those of the lease at each write.
	Labels map[string]string
	// Duration of the lease, 30 s if 0, in whole seconds; Renew is how often it
	// is renewed, 15 s if 0, with up to 4 % more.
	Duration, Renew time.Duration
	// Observer may be nil. The zero Logger discards.
	Observer Observer
	Logger   klog.Logger
	// Rand gives numbers from 0 to 1, for jitter; math/rand/v2's if nil.
	Rand func() float64
}

// Publisher keeps a server's own lease. Not safe for concurrent use: Release is
// called after Run has returned.
type Publisher struct {
	// Fixed after construction.
	cfg      PublisherConfig
	observer Observer
	trouble  trouble

	// Owned by Run, then by Release.
	lease   *coordinationv1.Lease // as last seen; nil if not known
	written metav1.MicroTime      // the renewTime of the last write that was tried
}

// Name is the name of a server's lease.
func Name(serverID string) string { return "konnectivity-proxy-server-" + serverID }

// NewPublisher returns a publisher. Run starts it.
func NewPublisher(cfg PublisherConfig) *Publisher {
	if cfg.Duration == 0 {
		cfg.Duration = defaultDuration
	}
	if cfg.Renew == 0 {
		cfg.Renew = 15 * time.Second
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	logger := cfg.Logger.WithValues("lease", Name(cfg.ServerID), "namespace", cfg.Namespace)
	cfg.Logger = logger
	return &Publisher{cfg: cfg, observer: orNop(cfg.Observer), trouble: trouble{logger: logger,
		fails: "Cannot publish this server's lease", works: "This server's lease is published again"}}
}

// Err is why the lease could not be written the last time; nil if it could. It
// may be called from any goroutine.
func (p *Publisher) Err() error { return p.trouble.err() }

// Run publishes the lease, taking over what an earlier process with this server
// ID left, and renews it until ctx ends. It returns nil then.
func (p *Publisher) Run(ctx context.Context) error {
	backoff := backoffFirst
	for {
		err := p.publish(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was asked to end, which is no failure
		}
		p.observer.Published(err)
		p.trouble.note(err)
		wait := time.Duration(float64(p.cfg.Renew) * (1 + renewalJitter*p.cfg.Rand()))
		if err != nil {
			wait, backoff = backoff, min(2*backoff, backoffMost)
		} else {
			backoff = backoffFirst
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// publish writes the lease once. After a conflict it looks again at once.
func (p *Publisher) publish(ctx context.Context) error {
	// A request that hangs must leave time for another one.
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Duration/3)
	defer cancel()
	var err error
	for range triesAtOnce {
		if err = p.write(ctx); err == nil {
			return nil
		}
		p.lease = nil // whatever it was, look before the next write
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return err
}

func (p *Publisher) write(ctx context.Context) error {
	leases := p.cfg.Client.Leases(p.cfg.Namespace)
	if p.lease == nil {
		found, err := leases.Get(ctx, Name(p.cfg.ServerID), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return err
		default:
			p.takeOver(found)
		}
	}
	if p.lease == nil {
		created, err := leases.Create(ctx, p.renewed(&coordinationv1.Lease{}), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		p.lease = created
		p.cfg.Logger.Info("Published this server's lease")
		return nil
	}
	updated, err := leases.Update(ctx, p.renewed(p.lease.DeepCopy()), metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	p.lease = updated
	return nil
}

// takeOver adopts a lease under our name.
func (p *Publisher) takeOver(found *coordinationv1.Lease) {
	p.lease = found
	if ours(found, p.written) {
		return
	}
	holder := ""
	if found.Spec.HolderIdentity != nil {
		holder = *found.Spec.HolderIdentity
	}
	p.cfg.Logger.Info("Taking over a lease that another process wrote", "holder", holder, "renewed", found.Spec.RenewTime)
}

// renewed fills in what we say.
func (p *Publisher) renewed(l *coordinationv1.Lease) *coordinationv1.Lease {
	p.written = metav1.NewMicroTime(time.Now().Truncate(time.Microsecond))
	written, seconds := p.written, int32(p.cfg.Duration/time.Second)
	l.Name, l.Namespace, l.Labels = Name(p.cfg.ServerID), p.cfg.Namespace, maps.Clone(p.cfg.Labels)
	l.Spec = coordinationv1.LeaseSpec{HolderIdentity: &p.cfg.ServerID, LeaseDurationSeconds: &seconds, RenewTime: &written}
	return l
}

// ours reports whether a lease is as this process wrote it last.
func ours(l *coordinationv1.Lease, written metav1.MicroTime) bool {
	return l.Spec.RenewTime != nil && !written.IsZero() && l.Spec.RenewTime.Time.Equal(written.Time)
}

// Release deletes the lease, so that agents stop counting this server at once.
// A lease that another process has taken over meanwhile is left alone. It tries
// until ctx ends; the caller bounds it. Call it after Run has returned.
func (p *Publisher) Release(ctx context.Context) error {
	if p.written.IsZero() {
		return nil // nothing was ever written
	}
	backoff := backoffFirst
	for {
		err := p.release(ctx)
		if err == nil {
			p.lease, p.written = nil, metav1.MicroTime{}
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		case <-time.After(backoff):
			backoff = min(2*backoff, backoffMost)
		}
	}
}

func (p *Publisher) release(ctx context.Context) error {
	leases, name := p.cfg.Client.Leases(p.cfg.Namespace), Name(p.cfg.ServerID)
	if p.lease == nil || !ours(p.lease, p.written) {
		found, err := leases.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		case !ours(found, p.written):
			p.cfg.Logger.Info("Another process has taken this server's lease over; it stays")
			return nil
		}
		p.lease = found
	}
	err := leases.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.lease.UID, ResourceVersion: &p.lease.ResourceVersion}})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		p.lease = nil // look again before the next try
		return err
	}
	p.cfg.Logger.Info("Released this server's lease")
	return nil
}
