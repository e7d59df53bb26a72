package agent

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/applied"
	"github.com/workwire/workwire/pkg/agent/condition"
	"github.com/workwire/workwire/pkg/agent/inbox"
	"github.com/workwire/workwire/pkg/agent/object"
	"github.com/workwire/workwire/pkg/agent/outbox"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// remove takes a deleted work off the cluster: it reports Deleting, deletes the
// record, removes what the record names, lets the record go, and, when nothing is
// left, reports Deleted, the last status of the work. As long as an object is
// held by a finalizer of its own, the record and the work stay.
func (a *Agent) remove(ctx context.Context, logger *slog.Logger, name string, entry *inbox.Entry) (time.Duration, error) {
	a.waiting.set(name, nil)
	a.named.Want(name, nil)
	a.executors.Follow(name, nil)
	if record, exists := a.records.Get(name); exists {
		a.reportRemoving(entry)
		going, err := a.records.Delete(ctx, record)
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, err
		}
		if going != nil {
			cleared, err := a.clear(ctx, logger, name, going, &entry.Spec)
			a.reportRemoving(entry)
			if err != nil {
				return 0, err
			}
			if !cleared {
				return a.unwatched(a.following(going)), nil
			}
		}
		if _, held := a.records.Get(name); held {
			// A finalizer of somebody else's is on the record; the watch tells when
			// it goes.
			return 0, nil
		}
	}
	a.works.drop(name)
	a.objects.Follow(name, nil)
	a.reportDeleted(entry)
	logger.Info("the work is gone from the cluster", "generation", entry.Generation)
	return 0, nil
}

// clear removes what a record that is being deleted names, and lets the record
// go once nothing is left. It reports whether that is so. Spec is the work's, nil
// if it is not known: what it orphans stays.
func (a *Agent) clear(ctx context.Context, logger *slog.Logger, name string, record *workv1.AppliedManifestWork, spec *workv1.ManifestWorkSpec) (bool, error) {
	resources, err := applied.Resources(record)
	if err != nil {
		logger.Warn("what was about to be applied is not known", "appliedManifestWork", record.Name, "error", err)
	}
	removals := a.applier.Remove(ctx, a.entriesOf(resources, spec), record.UID)
	var pending []applied.Resource
	refs := make([]object.Ref, 0, len(resources))
	for i := range removals {
		switch {
		case removals[i].Gone:
			logger.Info("removed an object", "object", resources[i].Ref)
			continue
		case removals[i].Err != nil:
			logger.Warn("an object was not removed", "object", resources[i].Ref, "error", removals[i].Err)
		default:
			logger.Info("an object is held by its finalizers", "object", resources[i].Ref)
		}
		pending = append(pending, resources[i])
		refs = append(refs, resources[i].Ref)
	}
	if len(pending) == 0 {
		return true, a.records.RemoveFinalizer(ctx, record)
	}
	a.objects.Follow(name, refs)
	if _, err := a.records.UpdateStatus(ctx, record, applied.Status{Resources: pending, Transitions: record.Status.Transitions}); err != nil {
		return false, err
	}
	if err := removalFailure(removals); err != nil {
		return false, fmt.Errorf("%d of %d objects could not be removed: %w", len(pending), len(resources), err)
	}
	return false, nil
}

// unwatched says when to look again for objects that no watch tells of; 0 if all
// are watched.
func (a *Agent) unwatched(refs []object.Ref) time.Duration {
	for _, ref := range refs {
		if !a.objects.Watched(ref.GroupVersionResource) {
			return a.config.SyncInterval
		}
	}
	return 0
}

// following gives the objects that a record names.
func (a *Agent) following(record *workv1.AppliedManifestWork) []object.Ref {
	resources, _ := applied.Resources(record) // what is unreadable was reported when it was read
	refs := make([]object.Ref, 0, len(resources))
	for _, r := range resources {
		refs = append(refs, r.Ref)
	}
	return refs
}

// reportRemoving reports which of the work's objects are still there.
func (a *Agent) reportRemoving(entry *inbox.Entry) {
	var previous workv1.ManifestWorkStatus
	if last, ok := a.outbox.Last(entry.Key); ok {
		previous = last.Status
	}
	status := condition.DeletingStatus(previous, int64(entry.Generation), func(m workv1.ManifestResourceMeta) condition.Presence {
		ref := object.Ref{
			GroupVersionResource: schema.GroupVersionResource{Group: m.Group, Version: m.Version, Resource: m.Resource},
			Namespace:            m.Namespace, Name: m.Name,
		}
		switch a.objects.Get(ref).State {
		case object.Present:
			return condition.Present
		case object.Absent:
			return condition.Missing
		default:
			return condition.Unresolved
		}
	}, metav1.Now())
	a.outbox.Set(entry.Key, outbox.Status{
		Generation: entry.Generation, Cluster: entry.Cluster, Meta: &entry.Meta, Status: status, Trace: entry.Trace,
	})
}

// reportDeleted reports the end of the work.
func (a *Agent) reportDeleted(entry *inbox.Entry) {
	var status workv1.ManifestWorkStatus
	if last, ok := a.outbox.Last(entry.Key); ok {
		status = last.Status
	}
	a.outbox.Set(entry.Key, outbox.Status{
		Generation: entry.Generation, Cluster: entry.Cluster, Meta: &entry.Meta, Trace: entry.Trace,
		Status: condition.WithDeleted(status, string(entry.Cluster), metav1.Now()), Final: true,
	})
}
