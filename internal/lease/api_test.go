package lease

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// elapse lets fake time pass.
func elapse(d time.Duration) { <-time.After(d) }

const namespace = "kube-system"

// api is a Kubernetes API for leases, with what client-go's fake leaves out:
// resource versions, conflicts, preconditions, selectors on watches, and faults.
type api struct {
	coordinationclient.LeaseInterface // nil: a call that is not written here fails loudly

	mu       sync.Mutex
	leases   map[string]*coordinationv1.Lease
	version  int
	watches  []*apiWatch
	calls    map[string]int   // by verb
	fail     map[string]error // by verb; the call has no effect
	lost     map[string]error // by verb; the call has its effect, and the answer is lost
	selector []string         // of lists and watches
}

type apiWatch struct {
	selector labels.Selector
	w        *watch.RaceFreeFakeWatcher
}

func newAPI() *api {
	return &api{leases: map[string]*coordinationv1.Lease{}, calls: map[string]int{}, fail: map[string]error{}, lost: map[string]error{}}
}

func (a *api) Leases(string) coordinationclient.LeaseInterface { return a }

// IsWatchListSemanticsUnSupported makes reflectors list first, then watch.
func (a *api) IsWatchListSemanticsUnSupported() bool { return true }

func resource() schema.GroupResource {
	return schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
}

// down makes every call fail as if there were no API; nil brings it back.
func (a *api) down(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, verb := range []string{"get", "list", "watch", "create", "update", "delete"} {
		if a.fail[verb] = err; err == nil {
			delete(a.fail, verb)
		}
	}
}

// hangUp ends all watches, without a word if silently.
func (a *api) hangUp(silently bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.watches {
		if !silently {
			w.w.Stop()
		}
	}
	a.watches = nil
}

// begin counts a call and holds the lock until end is called.
func (a *api) begin(verb string) (end func(), err error) {
	a.mu.Lock()
	a.calls[verb]++
	return a.mu.Unlock, a.fail[verb]
}

func (a *api) count(verb string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.calls[verb]
	a.calls[verb] = 0
	return n
}

func (a *api) put(l *coordinationv1.Lease, event watch.EventType) *coordinationv1.Lease {
	a.version++
	l = l.DeepCopy()
	l.ResourceVersion = strconv.Itoa(a.version)
	if l.UID == "" {
		l.UID = types.UID(fmt.Sprint("uid", a.version))
	}
	a.leases[l.Name] = l
	if event == watch.Deleted {
		delete(a.leases, l.Name)
	}
	for _, w := range a.watches {
		if w.selector.Matches(labels.Set(l.Labels)) {
			w.w.Action(event, l.DeepCopy())
		}
	}
	return l.DeepCopy()
}

// set writes a lease as somebody else would, whatever faults are set.
func (a *api) set(l *coordinationv1.Lease) *coordinationv1.Lease {
	a.mu.Lock()
	defer a.mu.Unlock()
	event := watch.Added
	if old := a.leases[l.Name]; old != nil {
		event = watch.Modified
		l = l.DeepCopy()
		l.UID = old.UID
	}
	return a.put(l, event)
}

func (a *api) remove(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.leases[name]; l != nil {
		a.put(l, watch.Deleted)
	}
}

func (a *api) get(name string) *coordinationv1.Lease {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.leases[name].DeepCopy()
}

func (a *api) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	end, err := a.begin("get")
	defer end()
	if err != nil {
		return nil, err
	}
	if a.leases[name] == nil {
		return nil, apierrors.NewNotFound(resource(), name)
	}
	return a.leases[name].DeepCopy(), a.lost["get"]
}

func (a *api) Create(_ context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	end, err := a.begin("create")
	defer end()
	if err != nil {
		return nil, err
	}
	if a.leases[l.Name] != nil {
		return nil, apierrors.NewAlreadyExists(resource(), l.Name)
	}
	return a.put(l, watch.Added), a.lost["create"]
}

func (a *api) Update(_ context.Context, l *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	end, err := a.begin("update")
	defer end()
	if err != nil {
		return nil, err
	}
	old := a.leases[l.Name]
	switch {
	case old == nil:
		return nil, apierrors.NewNotFound(resource(), l.Name)
	case l.ResourceVersion != old.ResourceVersion:
		return nil, apierrors.NewConflict(resource(), l.Name, fmt.Errorf("the lease was changed"))
	}
	return a.put(l, watch.Modified), a.lost["update"]
}

func (a *api) Delete(_ context.Context, name string, options metav1.DeleteOptions) error {
	end, err := a.begin("delete")
	defer end()
	if err != nil {
		return err
	}
	old := a.leases[name]
	if old == nil {
		return apierrors.NewNotFound(resource(), name)
	}
	if p := options.Preconditions; p != nil && (*p.UID != old.UID || *p.ResourceVersion != old.ResourceVersion) {
		return apierrors.NewConflict(resource(), name, fmt.Errorf("the precondition failed"))
	}
	a.put(old, watch.Deleted)
	return a.lost["delete"]
}

func (a *api) List(_ context.Context, options metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	end, err := a.begin("list")
	defer end()
	if err != nil {
		return nil, err
	}
	selector, err := labels.Parse(options.LabelSelector)
	if err != nil {
		return nil, err
	}
	a.selector = append(a.selector, options.LabelSelector)
	list := &coordinationv1.LeaseList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(a.version)}}
	for _, l := range a.leases {
		if selector.Matches(labels.Set(l.Labels)) {
			list.Items = append(list.Items, *l.DeepCopy())
		}
	}
	return list, nil
}

func (a *api) Watch(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
	end, err := a.begin("watch")
	defer end()
	if err != nil {
		return nil, err
	}
	selector, err := labels.Parse(options.LabelSelector)
	if err != nil {
		return nil, err
	}
	a.selector = append(a.selector, options.LabelSelector)
	w := watch.NewRaceFreeFake()
	a.watches = append(a.watches, &apiWatch{selector, w})
	return w, nil
}

// server is a lease of a server, renewed at the given time.
func server(id string, renewed time.Time) *coordinationv1.Lease {
	seconds, at := int32(30), metav1.NewMicroTime(renewed)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: Name(id), Namespace: namespace, Labels: map[string]string{"k8s-app": "konnectivity-server"}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &id, LeaseDurationSeconds: &seconds, RenewTime: &at},
	}
}

// events is an Observer that remembers.
type events struct {
	mu   sync.Mutex
	list []string
}

func (e *events) add(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, fmt.Sprintf(format, args...))
}

// take returns each event that happened since the last call once, in order.
func (e *events) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := e.list
	e.list = nil
	slices.Sort(list)
	return slices.Compact(list)
}

func (e *events) Listed(code int, reason string, _ time.Duration) { e.add("list %d %s", code, reason) }
func (e *events) Watched(code int, reason string)                 { e.add("watch %d %s", code, reason) }
func (e *events) Deleted(code int, reason string, _ time.Duration) {
	e.add("delete %d %s", code, reason)
}
func (e *events) Published(err error) { e.add("published %v", err) }
func (e *events) CountingFailed(source string, err error) {
	e.add("failed %s", source)
}

func forbidden() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "no"}}
}
