package works

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/kube"
	"github.com/workwire/workwire/pkg/wire"
)

// UpdateStatus stores s in the status of its work, and removes the hub's finalizer when s has
// Deleted=True and the work is being deleted. A work that no longer exists is no error. An error
// asks for a retry.
func (c *Controller) UpdateStatus(ctx context.Context, s *wire.Status) error {
	known, err := c.inTurn(ctx, s.UID, func(work *workv1.ManifestWork) (bool, error) {
		status, changed := c.answer(work, s)
		p := planStatus(work, status, changed)
		wrote := false
		if p.store {
			var err error
			if wrote, err = c.store(ctx, work, status, int64(s.Generation), nil); err != nil {
				return false, err
			}
			c.recordEvents(work, status)
		} else if !p.release {
			c.writes.WithLabelValues("unchanged").Inc()
		}
		if p.release {
			return c.release(ctx, work)
		}
		return wrote, nil
	})
	if !known {
		c.writes.WithLabelValues("gone").Inc()
	}
	return err
}

// SetCondition sets refused, the reason why the newest spec of a work cannot be published, in the work's
// status. An error asks for a retry.
func (c *Controller) SetCondition(ctx context.Context, uid types.UID, refused metav1.Condition) error {
	_, err := c.inTurn(ctx, uid, func(work *workv1.ManifestWork) (bool, error) {
		status := work.Status.DeepCopy()
		if !meta.SetStatusCondition(&status.Conditions, refused) {
			c.writes.WithLabelValues("unchanged").Inc()
			return false, nil
		}
		c.warn(work, refused.Reason, refused.Message)
		if pending, changed := c.pendingStatus(work); changed {
			status.Delivery = pending.Delivery
			if delivered := meta.FindStatusCondition(pending.Conditions, workv1.WorkDelivered); delivered != nil {
				meta.SetStatusCondition(&status.Conditions, *delivered)
			}
		}
		setReady(work, status, metav1.Now().Rfc3339Copy())
		return c.store(ctx, work, status, refused.ObservedGeneration, kube.AtVersion(work))
	})
	return err
}

// WriteDelivery writes how far the newest spec of a work has got, unless the status says so. An error
// asks for a retry.
func (c *Controller) WriteDelivery(ctx context.Context, uid types.UID) error {
	_, err := c.inTurn(ctx, uid, func(work *workv1.ManifestWork) (bool, error) {
		status, changed := c.pendingStatus(work)
		if !changed {
			return false, nil
		}
		wrote, err := c.store(ctx, work, status, work.Generation, kube.AtVersion(work))
		if err == nil {
			c.recordEvents(work, status)
		}
		return wrote, err
	})
	return err
}

// inTurn calls write, which reports whether it has written anything, with a work as it is known when its turn has come, see [pace.Gate]. What
// is refused, or finds the work gone, is answered at once, and tells nothing of how long writes take. It reports whether there is such a work.
func (c *Controller) inTurn(ctx context.Context, uid types.UID, write func(*workv1.ManifestWork) (bool, error)) (known bool, err error) {
	work, known := c.cfg.Cache.LatestByUID(uid)
	if !known {
		return false, nil
	}
	place, err := c.statuses.Enter(ctx, work.Labels[workv1.ReplicaSetLabelKey])
	if err != nil {
		return true, err
	}
	defer place.Leave()
	if work, known = c.latest(uid); known {
		place.Write(func() (wrote bool) { wrote, err = write(work); return wrote })
	}
	return known, err
}

// latest returns the work with uid as it was last seen or written here, with its whole status.
func (c *Controller) latest(uid types.UID) (*workv1.ManifestWork, bool) {
	work, ok := c.cfg.Cache.LatestByUID(uid)
	if !ok {
		return nil, false
	}
	return UnpackStatus(work), true
}

// recordEvents records events about what changed from the status of work to status.
func (c *Controller) recordEvents(work *workv1.ManifestWork, status *workv1.ManifestWorkStatus) {
	if c.cfg.Recorder == nil {
		return
	}
	for _, e := range eventsFor(&work.Status, status) {
		c.cfg.Recorder.Event(work, e.kind, e.reason, e.message)
	}
}

// warn records an event about a work.
func (c *Controller) warn(work *workv1.ManifestWork, reason, message string) {
	if c.cfg.Recorder != nil {
		c.cfg.Recorder.Event(work, corev1.EventTypeWarning, reason, message)
	}
}

// AgentAhead reports an agent that holds a newer generation than the hub, as after the hub's API
// was restored from a backup. It returns false: the API server assigns generations, so the engine
// publishes the work as authoritative.
func (c *Controller) AgentAhead(uid types.UID, held wire.Generation) (raised bool) {
	log := c.cfg.Logger.With("uid", uid, "heldGeneration", held)
	if work, ok := c.cfg.Cache.ByUID(uid); ok {
		log = log.With("work", work.Name, "cluster", work.Namespace, "generation", work.Generation)
		c.warn(work, workv1.EventOutdated, fmt.Sprintf("The agent holds generation %d. It is sent this one, %d, as authoritative. "+
			"An agent of Open Cluster Management ignores it until the work is deleted and created again", held, work.Generation))
	}
	log.Warn("agent holds a newer generation of the work, sending this one as authoritative")
	return false
}

// store writes status to work, and reports whether it has: not if the work is gone. A status that is derived from the one before it, and not
// an agent's, has in only [kube.AtVersion]: two hubs may write for a moment, and an agent's status is not sent again.
func (c *Controller) store(
	ctx context.Context, work *workv1.ManifestWork, status *workv1.ManifestWorkStatus, generation int64, only kube.JSONPatch,
) (wrote bool, err error) {
	err = c.writeStatus(ctx, work, status, only)
	written := "written"
	if only != nil {
		written = "delivery"
	}
	result := written
	if apierrors.IsConflict(err) || isRefusal(err) {
		// The API server also answers so when the work was created again under its name.
		current, getErr := c.current(ctx, work)
		switch {
		case getErr != nil:
			result, err = "failed", getErr
		case current == nil:
			result, err = "gone", nil
		case only != nil && apierrors.IsConflict(err):
			c.cfg.Cache.Wrote(current) // for the next attempt
		case isRefusal(err):
			c.writes.WithLabelValues("refused").Inc()
			return c.storeRefusal(ctx, current, status, generation, err)
		}
	}
	switch {
	case apierrors.IsNotFound(err):
		result, err = "gone", nil
	case err != nil:
		result = "failed"
	case result == written:
		c.countHops(work.Status.Delivery, status.Delivery)
	}
	c.writes.WithLabelValues(result).Inc()
	return result == written, err
}

// storeRefusal writes a condition to work in place of the status that the API server refused, and reports whether it has.
func (c *Controller) storeRefusal(
	ctx context.Context, work *workv1.ManifestWork, refused *workv1.ManifestWorkStatus, generation int64, refusal error,
) (wrote bool, err error) {
	c.cfg.Logger.Error("API server refused the work's status, not retrying", "work", work.Name, "cluster", work.Namespace,
		"uid", work.UID, "generation", generation, "error", refusal)
	status := unstorable(&work.Status, generation, refusal)
	if delivered := meta.FindStatusCondition(refused.Conditions, workv1.WorkDelivered); delivered != nil {
		meta.SetStatusCondition(&status.Conditions, *delivered)
	}
	setReady(work, status, metav1.Now().Rfc3339Copy())
	err = c.writeStatus(ctx, work, status, kube.AtVersion(work))
	if apierrors.IsNotFound(err) || isRefusal(err) {
		return false, nil
	}
	return err == nil, err
}

// writeStatus writes status to work. A PUT costs the API server less than a patch, but needs the version that is stored. Without
// only, a patch follows for a work that has changed since, and for hubs that may not update.
func (c *Controller) writeStatus(ctx context.Context, work *workv1.ManifestWork, status *workv1.ManifestWorkStatus, only kube.JSONPatch) error {
	err := c.putStatus(ctx, work, status)
	if only == nil && apierrors.IsConflict(err) || apierrors.IsForbidden(err) {
		return c.patch(ctx, "write the status of", work, append(only, kube.StatusPatch(work.UID, status)...), "status")
	}
	return err
}

// putStatus replaces the status of work unless it has changed since. It sends nothing else: API servers take the rest from what
// is stored.
func (c *Controller) putStatus(ctx context.Context, work *workv1.ManifestWork, status *workv1.ManifestWorkStatus) error {
	written, err := c.cfg.Client.WorkV1().ManifestWorks(work.Namespace).UpdateStatus(ctx, &workv1.ManifestWork{
		ObjectMeta: metav1.ObjectMeta{Namespace: work.Namespace, Name: work.Name, UID: work.UID, ResourceVersion: work.ResourceVersion},
		Status:     *status,
	}, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("write the status of ManifestWork %s/%s: %w", work.Namespace, work.Name, err)
	}
	c.cfg.Cache.Wrote(written)
	return nil
}

// patch writes to work.
func (c *Controller) patch(ctx context.Context, operation string, work *workv1.ManifestWork, patch kube.JSONPatch, subresources ...string) error {
	data, err := patch.Encode()
	if err != nil {
		return err
	}
	written, err := c.cfg.Client.WorkV1().ManifestWorks(work.Namespace).
		Patch(ctx, work.Name, types.JSONPatchType, data, metav1.PatchOptions{}, subresources...)
	if err != nil {
		return fmt.Errorf("%s ManifestWork %s/%s: %w", operation, work.Namespace, work.Name, err)
	}
	c.cfg.Cache.Wrote(written)
	return nil
}

// release removes the hub's finalizer from work, and reports whether it has: not if the work is gone, or has it no longer.
func (c *Controller) release(ctx context.Context, work *workv1.ManifestWork) (wrote bool, err error) {
	for attempt := 0; ; attempt++ {
		patch := kube.RemoveFinalizerPatch(work, workv1.ManifestWorkFinalizer)
		if patch == nil {
			return false, nil
		}
		result := "ok"
		err = c.patch(ctx, "remove the finalizer from", work, patch)
		if attempt == 0 && (apierrors.IsInvalid(err) || apierrors.IsConflict(err)) {
			// The cache has an older list of finalizers.
			var current *workv1.ManifestWork
			if current, err = c.current(ctx, work); current != nil {
				work = current
				continue
			}
			result = "gone"
		}
		switch {
		case apierrors.IsNotFound(err):
			result, err = "gone", nil
		case err != nil:
			result = "failed"
		case result == "ok":
			c.cfg.Logger.Debug("finalizer removed", "work", work.Name, "cluster", work.Namespace, "uid", work.UID)
		}
		c.removed.WithLabelValues(result).Inc()
		return result == "ok", err
	}
}

// current reads work from the API server; nil when it is gone, or another work has its name.
func (c *Controller) current(ctx context.Context, work *workv1.ManifestWork) (*workv1.ManifestWork, error) {
	current, err := c.cfg.Client.WorkV1().ManifestWorks(work.Namespace).Get(ctx, work.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get ManifestWork %s/%s: %w", work.Namespace, work.Name, err)
	case current.UID != work.UID:
		return nil, nil
	default:
		return current, nil
	}
}

// isRefusal reports whether err is an answer of the API server that no retry can change.
func isRefusal(err error) bool {
	return err != nil && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) ||
		strings.Contains(err.Error(), etcdTooLarge))
}

// etcdTooLarge is etcd's answer to an object beyond its limit, 1.5 MiB by default. API servers pass
// it on as an internal error without a reason.
const etcdTooLarge = "etcdserver: request is too large"
