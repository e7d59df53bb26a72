package replicaset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/runtime/redaction"
)

// The pause before a failed write of a work is retried. It doubles with each attempt.
const (
	retryBackoff    = 250 * time.Millisecond
	retryBackoffMax = time.Minute
)

// errOutdated is the error of a write because the cache was behind the API server.
var errOutdated = errors.New("the work has changed")

// writeAll performs the changes, Config.Workers at a time for all sets together, and returns the
// number of changes that must be retried. A change that failed before is not retried before its
// backoff has passed. Nothing more is written once somebody has changed or paused the set: the changes were decided for it as it was,
// and it is queued again.
func (c *Controller) writeAll(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet, changes []change, s *setMemory) (failed int) {
	now := c.cfg.Now()
	due := s.due(changes, now)
	errs := c.writeParallel(ctx, workv1alpha1.WorkLabel(controller.KeyOf(set)), due, func() bool {
		latest, ok := c.sets.Latest(controller.KeyOf(set))
		return ok && (steered(set, latest) || set.DeletionTimestamp == nil && (c.overriddenOtherwise(set, s) || c.stagedOtherwise(set, s)))
	})
	if ctx.Err() != nil {
		return len(changes)
	}
	failed = len(changes) - len(errs)
	anyFailed := false
	for i, err := range errs {
		key := controller.KeyOf(due[i].work)
		if err == nil {
			delete(s.failures, key)
			if due[i].action == create {
				s.createdUntil = now.Add(controller.WriteTimeout)
			}
			continue
		}
		failed++
		if s.fail(key, err, now) && !errors.Is(err, errOutdated) {
			anyFailed = true
		}
	}
	if anyFailed {
		text := s.unwritten()
		c.cfg.Logger.Warn("writing works failed, retrying", "set", set.Name, "namespace", set.Namespace, "error", text)
		c.event(set, corev1.EventTypeWarning, workv1alpha1.EventWriteFailed, "%s", text)
	}
	return failed
}

// unwritten says which works could not be written, and why the first of them; empty if there are none.
func (s *setMemory) unwritten() string {
	var clusters []string
	var first error
	for _, key := range slices.SortedFunc(maps.Keys(s.failures), func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }) {
		if err := s.failures[key].err; !errors.Is(err, errOutdated) {
			clusters, first = append(clusters, key.Namespace), cmp.Or(first, err)
		}
	}
	if len(clusters) == 0 {
		return ""
	}
	return fmt.Sprintf("Writing works of %d clusters failed (%s): %v", len(clusters), joinNames(clusters), redaction.WithoutValues(first, false))
}

// fail records a failed write of a work and reports whether it is the first.
func (s *setMemory) fail(work types.NamespacedName, err error, now time.Time) bool {
	f := s.failures[work]
	f.err = err
	f.retryAt = now.Add(min(retryBackoff<<min(f.attempts, 20), retryBackoffMax))
	f.attempts++
	s.failures[work] = f
	return f.attempts == 1
}

// due returns the changes whose backoff has passed, and forgets the failures of other works.
func (s *setMemory) due(changes []change, now time.Time) []change {
	wanted := sets.New[types.NamespacedName]()
	var due []change
	for _, change := range changes {
		key := controller.KeyOf(change.work)
		wanted.Insert(key)
		if f, ok := s.failures[key]; !ok || !now.Before(f.retryAt) {
			due = append(due, change)
		}
	}
	maps.DeleteFunc(s.failures, func(key types.NamespacedName, _ failure) bool { return !wanted.Has(key) })
	return due
}

// writeParallel performs the changes of a set and returns the errors of those that it has begun. It stops when ctx ends or outdated returns true.
func (c *Controller) writeParallel(ctx context.Context, set string, changes []change, outdated func() bool) []error {
	errs := make([]error, len(changes))
	var group sync.WaitGroup
	defer group.Wait()
	for i, change := range changes {
		place, err := c.writers.Enter(ctx, set)
		if err != nil {
			return errs
		}
		if outdated() {
			place.Leave()
			return errs[:i]
		}
		group.Go(func() {
			var result string
			defer place.Leave()
			place.Write(func() bool { result, errs[i] = c.write(ctx, change); return result == "ok" })
			if !errors.Is(errs[i], context.Canceled) {
				c.metrics.works.WithLabelValues(string(change.action), result).Inc()
			}
		})
	}
	return errs
}

// write performs one change. It returns the result for the metric, and an error if the change must
// be retried: errOutdated if the cache is about to show the reason.
func (c *Controller) write(ctx context.Context, change change) (result string, err error) {
	client := c.cfg.Client.WorkV1().ManifestWorks(change.work.Namespace)
	var written *workv1.ManifestWork
	switch change.action {
	case create:
		if written, err = client.Create(ctx, change.work, metav1.CreateOptions{}); err == nil {
			c.cfg.Works.Created(written)
		}
	case remove:
		err = client.Delete(ctx, change.work.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &change.work.UID}})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // deleted, or replaced by another work
			return "gone", nil
		}
	default:
		if written, err = c.change(ctx, change); err == nil {
			c.cfg.Works.Wrote(written)
		}
	}
	switch {
	case err == nil:
		return "ok", nil
	case change.action == create && apierrors.IsAlreadyExists(err), change.action != create && (apierrors.IsNotFound(err) || patchOutdated(err)):
		return "outdated", fmt.Errorf("%w: %w", errOutdated, err)
	default:
		return "failed", fmt.Errorf("%s ManifestWork %s/%s: %w", change.action, change.work.Namespace, change.work.Name, err)
	}
}

// change changes a work. For a template, a PUT costs the API server less than a patch; the patch follows if the work has changed
// since, and for hubs that may not update.
func (c *Controller) change(ctx context.Context, change change) (*workv1.ManifestWork, error) {
	client := c.cfg.Client.WorkV1().ManifestWorks(change.work.Namespace)
	if change.action == update {
		written, err := client.Update(ctx, change.next(), metav1.UpdateOptions{})
		if !apierrors.IsConflict(err) && !apierrors.IsForbidden(err) {
			return written, err
		}
	}
	patch, err := change.patch.Encode()
	if err != nil {
		return nil, err
	}
	return client.Patch(ctx, change.work.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
}

// patchOutdated reports whether a JSON patch was made for another state of the object. API servers
// name a field if the patched object is invalid, and none if the patch does not apply.
func patchOutdated(err error) bool {
	if !apierrors.IsInvalid(err) {
		return apierrors.IsConflict(err)
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return true
	}
	return !slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field != "" })
}
