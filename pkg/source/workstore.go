package source

import (
	"context"
	"iter"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
)

// storeAdapter implements [delivery.WorkStore] with a memory.
type storeAdapter struct {
	*memory
	ephemeral bool // Config.Ephemeral
}

var _ delivery.WorkStore = storeAdapter{}

func (a storeAdapter) Get(uid types.UID) (delivery.StoredWork, bool) {
	r, ok := a.get(uid)
	if !ok {
		return delivery.StoredWork{}, false
	}
	return delivery.StoredWork{Work: r.work, FirstGeneration: r.firstGeneration, Sequences: r.sequences, Relabeled: r.relabeled}, true
}

func (a storeAdapter) ListCluster(cluster wire.ClusterName) iter.Seq[*workv1.ManifestWork] {
	works, _, _ := a.snapshot(string(cluster))
	return slices.Values(works)
}

func (a storeAdapter) Clusters() iter.Seq[wire.ClusterName] {
	return func(yield func(wire.ClusterName) bool) {
		for name := range a.clusters() {
			if !yield(wire.ClusterName(name)) {
				return
			}
		}
	}
}

// Content returns work, which is whole.
func (a storeAdapter) Content(work *workv1.ManifestWork) *workv1.ManifestWork { return work }

// Unknown decides about a work that an agent holds and the memory does not have.
func (a storeAdapter) Unknown(held wire.SpecVersion) delivery.UnknownAction {
	return decideUnknown(held, a.ephemeral, a.since)
}

// WriteDelivery does nothing: the client reports no deliveries.
func (a storeAdapter) WriteDelivery(context.Context, types.UID) error { return nil }

// UpdateStatus stores the status of a work, and removes the work if its deletion is complete.
func (a storeAdapter) UpdateStatus(ctx context.Context, s *wire.Status) error {
	return a.modify(ctx, s.UID, func(old, next *storedWork) *change {
		next.sequences = old.sequences.Add(delivery.NewSession(s.Session), s.Sequence)
		next.work.Status = s.Status
		if old.work.DeletionTimestamp != nil && meta.IsStatusConditionTrue(s.Status.Conditions, workv1.WorkDeleted) {
			next.work.Finalizers = without(old.work.Finalizers, workv1.ManifestWorkFinalizer)
			return &change{removed: len(next.work.Finalizers) == 0, statusOnly: true}
		}
		if equality.Semantic.DeepEqual(old.work.Status, next.work.Status) {
			return nil
		}
		return &change{statusOnly: true}
	})
}

// SetCondition sets a condition in the status of a work.
func (a storeAdapter) SetCondition(ctx context.Context, uid types.UID, c metav1.Condition) error {
	return a.modify(ctx, uid, func(old, next *storedWork) *change {
		next.work.Status = *old.work.Status.DeepCopy()
		if !meta.SetStatusCondition(&next.work.Status.Conditions, c) {
			return nil
		}
		return &change{statusOnly: true}
	})
}

// maxGenerationLead limits how far the generation that an agent reports may be ahead of
// generationBase, so that a malicious agent cannot exhaust the generations.
const maxGenerationLead = 30 * 24 * 60 * 60

// AgentAhead raises the generation of a work above the one that its agent holds.
func (a storeAdapter) AgentAhead(uid types.UID, held wire.Generation) (raised bool) {
	if held > generationBase(time.Now())+maxGenerationLead {
		return false
	}
	// The only possible error is a failed write to the store; the agent reports the same again.
	err := a.modify(context.Background(), uid, func(old, next *storedWork) *change {
		if held <= wire.Generation(old.work.Generation) {
			return nil
		}
		next.work.Generation = int64(held) + 1
		return &change{}
	})
	return err == nil
}

// modify stores the change that f makes to next, a shallow copy of old. It does nothing if there is
// no such work or f returns nil.
func (a storeAdapter) modify(ctx context.Context, uid types.UID, f func(old, next *storedWork) *change) error {
	_, err := a.update(ctx, func(v *view) (*change, error) {
		old, ok := v.get(uid)
		if !ok {
			return nil, nil
		}
		next := old.with(shallowCopy(old.work))
		ch := f(old, next)
		if ch != nil {
			ch.old, ch.new = old, next
		}
		return ch, nil
	})
	return err
}

// shallowCopy returns a copy of work whose direct fields may be set; it shares what they point to.
func shallowCopy(work *workv1.ManifestWork) *workv1.ManifestWork {
	altered := *work
	return &altered
}

// without returns list without item.
func without(list []string, item string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == item })
}
