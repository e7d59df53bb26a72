package revisions

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/runtime/kube"
)

// The errors of Choose and Undo.
var (
	// ErrNoEarlier: the set has no other template in its history.
	ErrNoEarlier = errors.New("no earlier revision is stored")
	// ErrUnknown: no revision has the number.
	ErrUnknown = errors.New("no such revision is stored")
	// ErrCurrent: the template of the set is this revision already.
	ErrCurrent = errors.New("the template of the set is this revision already")
)

// fieldManager owns the template after an undo.
const fieldManager = "workwire-rollout-undo"

// Undone is the result of an undo.
type Undone struct {
	// From is the revision that the template was, 0 if the hub has not stored it yet; To is the one
	// that it is now. The hub gives it a new number.
	From, To int64
	// Paused reports that the set is paused: nothing is rolled out until it is resumed.
	Paused bool
}

// Choose returns the revision with the number to; with 0, the newest one whose template is not the
// current one, which has this hash. The revisions are in the order of their numbers.
func Choose(stored []Revision, hash string, to int64) (chosen *Revision, from int64, err error) {
	for i := range stored {
		current := stored[i].Labels[workwirev1alpha1.TemplateHashLabelKey] == hash
		if current {
			from = stored[i].Revision
		}
		switch {
		case to == 0 && !current, to != 0 && to == stored[i].Revision:
			chosen = &stored[i]
		}
	}
	switch {
	case chosen == nil && to == 0:
		return nil, from, ErrNoEarlier
	case chosen == nil:
		return nil, from, fmt.Errorf("%w: %d", ErrUnknown, to)
	case chosen.Revision == from:
		return nil, from, ErrCurrent
	}
	return chosen, from, nil
}

// Undo gives a set the template of the revision with the number to, or of the one before with 0. It
// returns the errors of [Choose], and a conflict if the spec of the set changes meanwhile.
func Undo(ctx context.Context, clients versioned.Interface, namespace, name string, to int64) (Undone, error) {
	sets := clients.WorkV1alpha1().ManifestWorkReplicaSets(namespace)
	set, err := sets.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return Undone{}, fmt.Errorf("get ManifestWorkReplicaSet %s/%s: %w", namespace, name, err)
	}
	stored, err := List(ctx, clients, set)
	if err != nil {
		return Undone{}, err
	}
	hash, err := Hash(&set.Spec.ManifestWorkTemplate)
	if err != nil {
		return Undone{}, err
	}
	chosen, from, err := Choose(stored, hash, to)
	if err != nil {
		return Undone{From: from}, fmt.Errorf("undo the rollout of ManifestWorkReplicaSet %s/%s: %w", namespace, name, err)
	}
	patch, err := kube.JSONPatch{
		kube.TestUID(set.UID),
		{Op: "test", Path: "/metadata/generation", Value: set.Generation},
		{Op: "replace", Path: "/spec/manifestWorkTemplate", Value: &chosen.Template},
	}.Encode()
	if err == nil {
		_, err = sets.Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	}
	if err != nil {
		return Undone{From: from}, fmt.Errorf("undo the rollout of ManifestWorkReplicaSet %s/%s: %w", namespace, name, err)
	}
	return Undone{From: from, To: chosen.Revision, Paused: workv1.IsPaused(set)}, nil
}
