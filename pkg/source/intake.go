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

// intake is the store as its link sees it.
type storeAdapter struct{ *store }

var _ delivery.WorkStore = storeAdapter{}

func (i storeAdapter) Get(uid types.UID) (delivery.StoredWork, bool) {
	r, ok := i.get(uid)
	if !ok {
		return delivery.StoredWork{}, false
	}
	return delivery.StoredWork{Work: r.work, FirstGeneration: r.firstGeneration, LastSequence: r.lastSequence}, true
}

func (i storeAdapter) ListCluster(cluster wire.ClusterName) iter.Seq[*workv1.ManifestWork] {
	works, _ := i.snapshot(string(cluster))
	return slices.Values(works)
}

func (i storeAdapter) Clusters() iter.Seq[wire.ClusterName] {
	return func(yield func(wire.ClusterName) bool) {
		for name := range i.clusters() {
			if !yield(wire.ClusterName(name)) {
				return
			}
		}
	}
}

// Intake sets the status of a work, and ends a deletion that is complete.
func (i storeAdapter) UpdateStatus(_ context.Context, s *wire.Status) error {
	_, err := i.do(func(v *view) (*change, error) {
		r, ok := v.get(s.UID)
		if !ok {
			return nil, nil
		}
		next := &storedWork{work: shallowCopy(r.work), firstGeneration: r.firstGeneration, lastSequence: max(r.lastSequence, s.Sequence)}
		next.work.Status = s.Status
		if r.work.DeletionTimestamp != nil && meta.IsStatusConditionTrue(s.Status.Conditions, workv1.WorkDeleted) {
			next.work.Finalizers = without(r.work.Finalizers, workv1.ManifestWorkFinalizer)
			return &change{old: r, new: next, gone: len(next.work.Finalizers) == 0, statusOnly: true}, nil
		}
		if equality.Semantic.DeepEqual(r.work.Status, next.work.Status) {
			return nil, nil
		}
		return &change{old: r, new: next, statusOnly: true}, nil
	})
	return err
}

// Refused sets a condition in the status of a work.
func (i storeAdapter) SetCondition(_ context.Context, uid types.UID, c metav1.Condition) error {
	_, err := i.do(func(v *view) (*change, error) {
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

// outdatedMax is how far ahead of what the clock allows an agent's generation may
// be and still be believed, so that a false agent can not use generations up.
const maxGenerationLead = 30 * 24 * 60 * 60

// Outdated lets a work go on from the generation that an agent holds.
func (i storeAdapter) AgentAhead(uid types.UID, held wire.Generation) {
	if held > generationBase(time.Now())+maxGenerationLead {
		return
	}
	// The one error there can be is that the store can not be written to; the agent
	// will report the same again.
	_, _ = i.do(func(v *view) (*change, error) {
		r, ok := v.get(uid)
		if !ok || held <= wire.Generation(r.work.Generation) {
			return nil, nil
		}
		next := &storedWork{work: shallowCopy(r.work), firstGeneration: r.firstGeneration, lastSequence: r.lastSequence}
		next.work.Generation = int64(held) + 1
		return &change{old: r, new: next}, nil
	})
}

// alter gives a copy of work whose direct fields may be set; what they point to
// is shared.
func shallowCopy(work *workv1.ManifestWork) *workv1.ManifestWork {
	altered := *work
	return &altered
}

// without gives list without item.
func without(list []string, item string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == item })
}
