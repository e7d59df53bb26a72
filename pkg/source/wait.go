package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source/store"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/pkg/workstate"
)

// Condition is what [Client.WaitFor] waits for.
type Condition string

const (
	// Applied: the agent has applied all manifests.
	Applied Condition = workv1.WorkApplied
	// Available: all objects exist on the cluster. Their pods may not run: that is Ready.
	Available Condition = workv1.WorkAvailable
	// Ready: all objects are ready, as workctl has it (package workstate). Agents report it of works with
	// the annotation [workv1.ReportReadinessAnnotationKey] (docs/conditions.md, Readiness).
	Ready Condition = workv1.WorkReady
	// Complete: the condition rules of the work have found it complete.
	Complete Condition = workv1.WorkComplete
	// Deleted: the work is removed, after its agent has deleted the objects.
	Deleted Condition = workv1.WorkDeleted
)

// WaitError says that a context ended before a work had a condition. If the context's deadline has
// passed, apierrors.IsTimeout reports true; it wraps the error of the context.
type WaitError struct {
	Cluster   wire.ClusterName
	Name      string
	Condition Condition
	// Generation is that of the work; 0: the client has not loaded its works.
	Generation int64
	// Last is the work's condition of this type, possibly of an earlier generation; of Ready, the one that
	// keeps the work from it, such as Progressing. nil: it has none.
	Last *metav1.Condition
	// Why is what keeps the work from being ready: the object, and what the cluster says of it. Empty: it is not known.
	Why string
	// NoConnection says since when this client has no connection to the broker, so that it hears of no
	// cluster; nil: it has one, or is a replica that does not publish.
	NoConnection *NoConnection
	// AgentHeard: an agent of the cluster has sent something, as far as this client knows: a status of
	// the work, ever, or any message since the client runs. A replica that does not publish knows
	// statuses only.
	AgentHeard bool
	// LastHeard is when this client has received its last message from the cluster; zero: never.
	LastHeard time.Time
	// Disconnected is since when the agent of the cluster is known to have no connection to the broker
	// (see [PresenceDisconnected]); zero: it is not known.
	Disconnected time.Time

	deleting bool
	cause    error
}

// NoConnection is about a client without a connection to the broker.
type NoConnection struct {
	// Since is when the connection was lost; zero: there never was one.
	Since time.Time
	// Err is why it was lost or could not be made, the newest of it; nil: it is not known.
	Err error
}

func (n *NoConnection) text() string {
	text := "this client was never connected to the broker"
	if !n.Since.IsZero() {
		text = "this client is not connected to the broker since " + at(n.Since)
	}
	if n.Err != nil {
		text += fmt.Sprintf(": %v", n.Err)
	}
	return text
}

func at(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Error returns what was waited for and what is known.
func (e *WaitError) Error() string {
	text := fmt.Sprintf("wait until work %s/%s is %s: %v", e.Cluster, e.Name, e.Condition, e.cause)
	if e.Generation == 0 {
		return text + ": the source has not loaded its works: is Run called?"
	}
	if e.NoConnection != nil {
		text += "; " + e.NoConnection.text()
	}
	if e.Last != nil {
		text += fmt.Sprintf("; generation %d is wanted, and the last condition is %s=%s of generation %d, reason %s: %s",
			e.Generation, e.Last.Type, e.Last.Status, e.Last.ObservedGeneration, e.Last.Reason, e.Last.Message)
	} else {
		text += fmt.Sprintf("; generation %d has no condition %s", e.Generation, e.Condition)
	}
	if e.Why != "" {
		text += "; " + e.Why
	}
	switch {
	case !e.Disconnected.IsZero():
		text += fmt.Sprintf("; the agent of cluster %q is disconnected since %s", e.Cluster, at(e.Disconnected))
	case !e.LastHeard.IsZero():
		return text + fmt.Sprintf("; the last message of cluster %q came at %s", e.Cluster, at(e.LastHeard))
	case e.AgentHeard:
		return text + fmt.Sprintf("; the agent of cluster %q has reported a status earlier", e.Cluster)
	case e.NoConnection != nil:
		return text // so that no agent can have been heard
	default:
		text += fmt.Sprintf("; no agent of cluster %q has been heard", e.Cluster)
	}
	if e.deleting {
		text += "; if none will answer, remove the work's finalizers with Update or Patch"
	}
	return text
}

// Unwrap returns the error of the context.
func (e *WaitError) Unwrap() error { return e.cause }

// Status returns the status of an API server's error with this meaning.
func (e *WaitError) Status() metav1.Status {
	s := metav1.Status{Status: metav1.StatusFailure, Message: e.Error(), Details: &metav1.StatusDetails{
		Group: worksResource.Group, Kind: worksResource.Resource, Name: e.Name,
	}}
	if errors.Is(e.cause, context.DeadlineExceeded) {
		s.Reason, s.Code = metav1.StatusReasonTimeout, http.StatusGatewayTimeout
	}
	return s
}

// WaitFor waits until a work has a condition for its newest generation, and returns a copy of it. A
// condition that is False does not end the wait, since agents try again. WaitFor returns a
// [WaitError] when ctx ends, NotFound if there is no such work or it is removed meanwhile, Conflict if it is
// being deleted, and ServiceUnavailable when Run ends. For [Ready], it returns BadRequest if the work is
// available and does not ask for readiness.
//
// [Deleted] holds if there is no work of the name, or if another one has been created in place of the
// one that WaitFor found. WaitFor returns the last state of the work then, nil if it was gone before.
//
// A wait costs nothing until its work changes.
func (c *Client) WaitFor(ctx context.Context, namespace, name string, condition Condition) (*workv1.ManifestWork, error) {
	works := &manifestWorks{client: c, namespace: namespace}
	if !slices.Contains([]Condition{Applied, Available, Ready, Complete, Deleted}, condition) {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("condition %q cannot be waited for: use %s, %s, %s, %s or %s",
			condition, Applied, Available, Ready, Complete, Deleted))
	}
	uid, err := works.resolve(ctx, name)
	if err != nil {
		if now, _ := c.memory.get(uid); now != nil && ctx.Err() != nil {
			return nil, c.waitError(now, condition, ctx.Err())
		}
		if ctx.Err() != nil {
			return nil, &WaitError{Cluster: wire.ClusterName(namespace), Name: name, Condition: condition, cause: ctx.Err()}
		}
		return nil, err
	}
	changed, stop := c.memory.notify(uid)
	defer stop()
	var first, last *storedWork
	for {
		now, _ := c.memory.get(uid)
		first, last = cmp.Or(first, now), cmp.Or(now, last)
		done, err := decideWait(condition, first, now, name)
		if err != nil {
			return nil, err
		}
		if done && condition == Deleted {
			return goneWork(first, last), nil
		}
		if done {
			return now.work.DeepCopy(), nil
		}
		select {
		case <-changed:
		case <-c.ending:
			return nil, errRunEnded()
		case <-ctx.Done():
			return nil, c.waitError(now, condition, ctx.Err())
		}
	}
}

// decideWait reports whether a work has a condition: first is the work that the wait found first, and
// now its present state; nil: there is none.
func decideWait(condition Condition, first, now *storedWork, name string) (done bool, err error) {
	replaced := first != nil && now != nil && first.firstGeneration != now.firstGeneration
	switch {
	case condition == Deleted:
		return now == nil || replaced, nil
	case now == nil:
		return false, apierrors.NewNotFound(worksResource, name)
	case now.work.DeletionTimestamp != nil:
		return false, apierrors.NewConflict(worksResource, name, fmt.Errorf("the work is being deleted and cannot become %s", condition))
	}
	if condition == Ready {
		phase := workstate.Reached(now.work)
		if phase == workstate.PhaseApplied && !workv1.ReportsReadiness(now.work) {
			return false, apierrors.NewBadRequest(fmt.Sprintf("work %s/%s does not report whether its objects are ready: annotate it with %s=true, or wait until it is %s",
				now.work.Namespace, name, workv1.ReportReadinessAnnotationKey, Available))
		}
		return phase == workstate.PhaseReady, nil
	}
	c := meta.FindStatusCondition(now.work.Status.Conditions, string(condition))
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == now.work.Generation, nil
}

// goneWork returns a copy of the last state of first, nil if there was none.
func goneWork(first, last *storedWork) *workv1.ManifestWork {
	switch {
	case first == nil:
		return nil
	case last.firstGeneration != first.firstGeneration:
		return first.work.DeepCopy()
	}
	return last.work.DeepCopy()
}

// waitError returns the error of a wait for a work.
func (c *Client) waitError(r *storedWork, condition Condition, cause error) *WaitError {
	cluster := wire.ClusterName(r.work.Namespace)
	e := &WaitError{
		Cluster: cluster, Name: r.work.Name, Condition: condition, Generation: r.work.Generation,
		Last:         meta.FindStatusCondition(r.work.Status.Conditions, string(condition)).DeepCopy(),
		NoConnection: c.noConnection(), deleting: r.work.DeletionTimestamp != nil, cause: cause,
	}
	known, _ := c.clusters.Get(cluster)
	e.LastHeard = known.LastHeard
	if known.Presence == PresenceDisconnected {
		e.Disconnected = known.Since
	}
	state := workstate.Of(r.work, nil)
	if condition == Ready {
		e.Last = state.By.DeepCopy()
	}
	if state.Blocker != nil && state.Blocker.OfManifest || condition == Ready && state.Phase == workstate.PhaseApplied {
		e.Why = state.Why()
	}
	e.AgentHeard = !e.LastHeard.IsZero() || r.sequences.Newest.ID > 0
	return e
}

// noConnection returns what is known of a missing connection; nil if none is missing.
func (c *Client) noConnection() *NoConnection {
	_, shared := c.config.Store.(store.Shared)
	if c.Connected() || shared && !c.publishing.Load() {
		return nil
	}
	n := &NoConnection{Since: c.clusters.lastLost()}
	if t, ok := c.config.Transport.(transport.FailureReporter); ok {
		n.Err = t.Failure()
	}
	return n
}

// notify returns a channel that receives after each change of a work, until stop is called. Changes
// that are not received yet count as one.
func (m *memory) notify(uid types.UID) (changed <-chan struct{}, stop func()) {
	waiter := make(chan struct{}, 1)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waiters[uid] == nil {
		m.waiters[uid] = make(map[chan struct{}]struct{})
	}
	m.waiters[uid][waiter] = struct{}{}
	return waiter, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if delete(m.waiters[uid], waiter); len(m.waiters[uid]) == 0 {
			delete(m.waiters, uid)
		}
	}
}

// wakeWaiters notifies those that wait for a work. The caller holds mu.
func (m *memory) wakeWaiters(uid types.UID) {
	for waiter := range m.waiters[uid] {
		select {
		case waiter <- struct{}{}:
		default: // it is notified already
		}
	}
}
