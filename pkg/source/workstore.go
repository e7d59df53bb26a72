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

// storeAdapter implements [delivery.WorkStore] with a store.
type storeAdapter struct{ *store }

var _ delivery.WorkStore = storeAdapter{}

func (a storeAdapter) Get(uid types.UID) (delivery.StoredWork, bool) {
	r, ok := a.get(uid)
	if !ok {
		return delivery.StoredWork{}, false
	}
	return delivery.StoredWork{Work: r.work, FirstGeneration: r.firstGeneration, LastSequence: r.lastSequence}, true
}

func (a storeAdapter) ListCluster(cluster wire.ClusterName) iter.Seq[*workv1.ManifestWork] {
	works, _ := a.snapshot(string(cluster))
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

// UpdateStatus stores the status of a work, and removes the work if its deletion is complete.
func (a storeAdapter) UpdateStatus(_ context.Context, s *wire.Status) error {
	_, err := a.update(func(v *view) (*change, error) {
		r, ok := v.get(s.UID)
		if !ok {
			return nil, nil
		}
		next := &storedWork{work: shallowCopy(r.work), firstGeneration: r.firstGeneration, lastSequence: max(r.lastSequence, s.Sequence)}
		next.work.Status = s.Status
		if r.work.DeletionTimestamp != nil && meta.IsStatusConditionTrue(s.Status.Conditions, workv1.WorkDeleted) {
			next.work.Finalizers = without(r.work.Finalizers, workv1.ManifestWorkFinalizer)
			return &change{old: r, new: next, removed: len(next.work.Finalizers) == 0, statusOnly: true}, nil
		}
		if equality.Semantic.DeepEqual(r.work.Status, next.work.Status) {
			return nil, nil
		}
		return &change{old: r, new: next, statusOnly: true}, nil
	})
	return err
}

// SetCondition sets a condition in the status of a work.
func (a storeAdapter) SetCondition(_ context.Context, uid types.UID, c metav1.Condition) error {
	_, err := a.update(func(v *view) (*change, error) {
		r, ok := v.get(uid)
		if !ok {
			return nil, nil
		}
		next := &storedWork{work: shallowCopy(r.work), firstGeneration: r.firstGeneration, lastSequence: r.lastSequence}
		next.work.Status = *r.work.Status.DeepCopy()
		if !meta.SetStatusCondition(&next.work.Status.Conditions, c) {
			return nil, nil
		}
		return &change{old: r, new: next, statusOnly: true}, nil
	})
	return err
}

// maxGenerationLead limits how far the generation that an agent reports may be ahead of
// generationBase, so that a malicious agent cannot exhaust the generations.
const maxGenerationLead = 30 * 24 * 60 * 60

// AgentAhead raises the generation of a work above the one that its agent holds.
func (a storeAdapter) AgentAhead(uid types.UID, held wire.Generation) {
	if held > generationBase(time.Now())+maxGenerationLead {
		return
	}
	// The only possible error is a failed write to the store; the agent reports the same again.
	_, _ = a.update(func(v *view) (*change, error) {
		r, ok := v.get(uid)
		if !ok || held <= wire.Generation(r.work.Generation) {
			return nil, nil
		}
		next := &storedWork{work: shallowCopy(r.work), firstGeneration: r.firstGeneration, lastSequence: r.lastSequence}
		next.work.Generation = int64(held) + 1
		return &change{old: r, new: next}, nil
	})
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
