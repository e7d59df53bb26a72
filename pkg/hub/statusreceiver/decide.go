package statusreceiver

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// plan is what a status calls for.
type plan struct {
	// store: the status is to be written.
	store bool
	// release: the hub's finalizer is to be taken away after that.
	release bool
}

// decide plans for a status of work that came in. A work that is done with and
// held by nobody else needs no status any more.
func decide(work *workv1.ManifestWork, status *workv1.ManifestWorkStatus) plan {
	p := plan{store: !apiequality.Semantic.DeepEqual(&work.Status, status)}
	if work.DeletionTimestamp != nil && meta.IsStatusConditionTrue(status.Conditions, workv1.WorkDeleted) {
		p.release = slices.Contains(work.Finalizers, workv1.ManifestWorkFinalizer)
		if p.release && len(work.Finalizers) == 1 {
			p.store = false
		}
	}
	return p
}

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// statusPatch is the JSON patch that makes status that of the work with uid, and
// of no other work of its name. (A uid in a merge patch would not do: API servers
// ignore all metadata in a patch of a custom resource's status.)
func statusPatch(uid types.UID, status *workv1.ManifestWorkStatus) ([]byte, error) {
	data, err := json.Marshal([]operation{
		{Op: "test", Path: "/metadata/uid", Value: uid},
		{Op: "add", Path: "/status", Value: status},
	})
	if err != nil {
		return nil, fmt.Errorf("encode the status: %w", err)
	}
	return data, nil
}

// releasePatch is the JSON patch that takes the hub's finalizer, and no other,
// from work. It fails on a work of another UID, or with another list in which
// ours stands elsewhere, but not because of any other change. It is nil when
// work has no such finalizer.
func releasePatch(work *workv1.ManifestWork) ([]byte, error) {
	index := slices.Index(work.Finalizers, workv1.ManifestWorkFinalizer)
	if index < 0 {
		return nil, nil
	}
	path := fmt.Sprintf("/metadata/finalizers/%d", index)
	data, err := json.Marshal([]operation{
		{Op: "test", Path: "/metadata/uid", Value: work.UID},
		{Op: "test", Path: path, Value: workv1.ManifestWorkFinalizer},
		{Op: "remove", Path: path},
	})
	if err != nil {
		return nil, fmt.Errorf("encode the patch: %w", err)
	}
	return data, nil
}

// unstorable is the status to write in place of one that the API server refuses
// with refusal: what was there before, and a condition that says so.
func unstorable(before *workv1.ManifestWorkStatus, generation int64, refusal error) *workv1.ManifestWorkStatus {
	status := before.DeepCopy()
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type:   ConditionStatusStored,
		Status: metav1.ConditionFalse,
		Reason: ReasonRefused,
		Message: truncate(fmt.Sprintf("The hub's API refuses the status that the agent reports, so the rest of this status is an older one: %v",
			refusal), maxMessage),
		ObservedGeneration: generation,
	})
	return status
}

// maxMessage is how long a condition's message may be, in bytes.
const maxMessage = 32768

func truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const mark = " …"
	return strings.ToValidUTF8(s[:limit-len(mark)], "") + mark
}
