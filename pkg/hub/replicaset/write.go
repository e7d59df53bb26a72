package replicaset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
)

// outcome is what became of a change.
type outcome struct {
	work   *workv1.ManifestWork // as it is now; nil when there is none
	result string               // for the metric
	err    error                // asks for another try
}

// write makes the changes, Config.Workers at a time for all sets together, and
// gives the number of those that are to be tried again. One that failed is not
// tried before its time, whatever else there is to do for the set.
func (c *Controller) write(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet, changes []change, m *memory) (failed int) {
	wanted := make(map[types.NamespacedName]bool, len(changes))
	now := c.cfg.Now()
	var due []change
	for _, change := range changes {
		name := nameOf(change.work)
		wanted[name] = true
		if f, ok := m.failed[name]; ok && now.Before(f.again) {
			failed++
			continue
		}
		due = append(due, change)
	}
	for name := range m.failed {
		if !wanted[name] {
			delete(m.failed, name)
		}
	}
	outcomes := c.writeAll(ctx, due)
	var fresh []string
	var first error
	for i, outcome := range outcomes {
		name := nameOf(due[i].work)
		if outcome.result == "" || errors.Is(outcome.err, context.Canceled) {
			continue
		}
		c.metrics.works.WithLabelValues(string(due[i].action), outcome.result).Inc()
		if outcome.err != nil {
			failed++
			if m.fail(name, now) && outcome.result == "failed" {
				fresh = append(fresh, name.Namespace)
				first = cmp.Or(first, outcome.err)
			}
			continue
		}
		delete(m.failed, name)
		if outcome.work != nil {
			m.works[name] = written{work: outcome.work, created: madeAt(due[i].action, now)}
			c.cfg.Works.Wrote(outcome.work)
		}
	}
	if len(fresh) > 0 {
		slices.Sort(fresh)
		c.cfg.Logger.Warn("works of a ManifestWorkReplicaSet can not be written; trying again",
			"set", set.Name, "namespace", set.Namespace, "clusters", names(fresh), "error", first)
		c.event(set, corev1.EventTypeWarning, "WriteFailed", "Works of %d clusters can not be written (%s): %v", len(fresh), names(fresh), first)
	}
	return failed
}

func madeAt(action action, now time.Time) time.Time {
	if action == create {
		return now
	}
	return time.Time{}
}

// writeAll makes the changes. An outcome without a result was not tried, as ctx
// ended.
func (c *Controller) writeAll(ctx context.Context, changes []change) []outcome {
	outcomes := make([]outcome, len(changes))
	var group sync.WaitGroup
	defer group.Wait()
	for i, change := range changes {
		select {
		case <-ctx.Done():
			return outcomes
		case c.slots <- struct{}{}:
		}
		group.Go(func() {
			defer func() { <-c.slots }()
			outcomes[i] = c.writeOne(ctx, change)
		})
	}
	return outcomes
}

func (c *Controller) writeOne(ctx context.Context, change change) outcome {
	client := c.cfg.Client.WorkV1().ManifestWorks(change.work.Namespace)
	var after *workv1.ManifestWork
	var err error
	switch change.action {
	case create:
		after, err = client.Create(ctx, change.work, metav1.CreateOptions{})
	case remove:
		err = client.Delete(ctx, change.work.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &change.work.UID}})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // gone, or another one by now
			return outcome{result: "gone"}
		}
	default:
		var patch []byte
		if patch, err = encode(change.patch); err == nil {
			after, err = client.Patch(ctx, change.work.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
		}
	}
	switch {
	case err == nil:
		if after != nil {
			_, _ = slim(after)
		}
		return outcome{result: "ok", work: after}
	case change.action == create && apierrors.IsAlreadyExists(err), change.action != create && (apierrors.IsNotFound(err) || outdated(err)):
		// The cache is about to show what is there.
		return outcome{result: "outdated", err: err}
	default:
		return outcome{result: "failed", err: fmt.Errorf("%s ManifestWork %s/%s: %w", change.action, change.work.Namespace, change.work.Name, err)}
	}
}

// outdated reports whether a patch met another object than it was made for. API
// servers name a field when they find fault with what a patch makes of an object,
// and none when the patch itself does not fit.
func outdated(err error) bool {
	if !apierrors.IsInvalid(err) {
		return apierrors.IsConflict(err)
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return true
	}
	return !slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field != "" })
}
