package replicaset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/revisions"
	"github.com/workwire/workwire/pkg/runtime/kube"
	"github.com/workwire/workwire/pkg/runtime/redaction"
)

// history is what the controller remembers of the revisions of a set.
type history struct {
	generation int64 // of hash
	hash       string
	limit      int // the last one that was applied
	limitKnown bool
	retry      failure             // of the last attempt to store the revision
	served     *revisions.Revision // the one that was served last; nil: none
}

// noDefinitionRetry is the pause before revisions are stored again on an API server that does not
// know them.
const noDefinitionRetry = 10 * time.Minute

// storeRevision stores the template of set as a revision if the set does not say that this is done,
// and returns the set as it is afterwards. A failure does not stop the rollout: it is reported and
// retried.
func (c *Controller) storeRevision(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet, s *setMemory, now time.Time) *workv1alpha1.ManifestWorkReplicaSet {
	h := &s.history
	limit, valid := revisions.Limit(set.Annotations)
	if h.hash == "" || h.generation != set.Generation {
		hash, err := revisions.Hash(&set.Spec.ManifestWorkTemplate)
		if err != nil {
			return set // no work can have this template either
		}
		if hash != h.hash {
			h.retry = failure{}
		}
		h.hash, h.generation = hash, set.Generation
	}
	limitChanged := h.limitKnown && h.limit != limit
	stored := set.Annotations[workwirev1alpha1.RevisionHashAnnotationKey] == h.hash && set.Annotations[workwirev1alpha1.RevisionAnnotationKey] != ""
	if stored && !limitChanged {
		h.limit, h.limitKnown = limit, true
		return set
	}
	if now.Before(h.retry.retryAt) {
		return set
	}
	updated, err := c.writeRevision(ctx, set, h.hash, limit)
	if err != nil {
		c.revisionFailed(set, h, now, err)
		return set
	}
	if !valid {
		c.event(set, corev1.EventTypeWarning, workv1alpha1.ReasonInvalidAnnotation, "%s is not a number from 0 to %d; %d templates are kept",
			workwirev1alpha1.RevisionHistoryLimitAnnotationKey, revisions.MaxLimit, limit)
	}
	h.limit, h.limitKnown, h.retry = limit, true, failure{}
	return updated
}

// writeRevision stores the template of set, which has this hash, deletes the revisions beyond the
// limit, and annotates the set.
func (c *Controller) writeRevision(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet, hash string, limit int) (*workv1alpha1.ManifestWorkReplicaSet, error) {
	stored, err := revisions.List(ctx, c.cfg.Client, set)
	if err != nil {
		return nil, err
	}
	plan := revisions.Decide(stored, hash, limit)
	client := c.cfg.Client.WorkwireV1alpha1().ManifestWorkReplicaSetRevisions(set.Namespace)
	switch {
	case plan.Existing == nil:
		_, err = client.Create(ctx, revisions.New(set, hash, plan.Number), metav1.CreateOptions{})
	case plan.Existing.Revision != plan.Number:
		var patch []byte
		patch, err = kube.JSONPatch{kube.TestUID(plan.Existing.UID), {Op: "add", Path: "/revision", Value: plan.Number}}.Encode()
		if err == nil {
			_, err = client.Patch(ctx, plan.Existing.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("store revision %d: %w", plan.Number, err)
	}
	for i := range plan.Delete {
		if number := plan.Delete[i].Revision; number == workwirev1alpha1.RevisionOf(set.Annotations, workwirev1alpha1.ProvenRevisionAnnotationKey) ||
			number == workwirev1alpha1.RevisionOf(set.Annotations, workwirev1alpha1.ServedRevisionAnnotationKey) {
			continue
		}
		name := plan.Delete[i].Name
		err := client.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &plan.Delete[i].UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("delete revision %s: %w", name, err)
		}
	}
	return c.annotateRevision(ctx, set, hash, plan)
}

// annotateRevision annotates set with the number and the hash of its template.
func (c *Controller) annotateRevision(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet, hash string, plan revisions.Plan) (*workv1alpha1.ManifestWorkReplicaSet, error) {
	wanted := map[string]string{
		workwirev1alpha1.RevisionAnnotationKey: strconv.FormatInt(plan.Number, 10), workwirev1alpha1.RevisionHashAnnotationKey: hash,
	}
	again, proven := "", workwirev1alpha1.RevisionOf(set.Annotations, workwirev1alpha1.ProvenRevisionAnnotationKey)
	if plan.Existing != nil && plan.Existing.Revision != plan.Number {
		again = fmt.Sprintf(", the template of revision %d again", plan.Existing.Revision)
		if proven == plan.Existing.Revision {
			wanted[workwirev1alpha1.ProvenRevisionAnnotationKey] = wanted[workwirev1alpha1.RevisionAnnotationKey]
		}
	}
	var removed []string
	if set.Annotations[workwirev1alpha1.RevisionHashAnnotationKey] != hash { // a new template is tried
		removed = append(removed, workwirev1alpha1.ServedRevisionAnnotationKey)
		if proven >= plan.Number { // somebody has deleted it with the others: the numbers begin again
			removed = append(removed, workwirev1alpha1.ProvenRevisionAnnotationKey)
		}
	}
	if revisionsOf(set, hash).Own != plan.Number && approvedFrom(set, plan.Number) { // likewise, of other templates that had the number
		removed = append(removed, workwirev1alpha1.ApprovalsAnnotationKey)
	}
	changes := mapPatch("/metadata/annotations", set.Annotations, wanted, removed)
	if len(changes) == 0 {
		return set, nil
	}
	patched, err := c.jsonPatchSet(ctx, set, "annotate the revision of", append(kube.JSONPatch{kube.TestUID(set.UID)}, changes...))
	if err != nil || patched == nil {
		return set, err
	}
	c.event(set, corev1.EventTypeNormal, workv1alpha1.EventNewTemplate, "Revision %d%s", plan.Number, again)
	return patched, nil
}

// approvedFrom reports whether a set has approvals of this revision or later ones. What cannot be read approves nothing.
func approvedFrom(set *workv1alpha1.ManifestWorkReplicaSet, number int64) bool {
	approvals, _ := workwirev1alpha1.ApprovalsOf(set.Annotations)
	return slices.ContainsFunc(approvals, func(a workwirev1alpha1.Approval) bool { return a.Revision >= number })
}

// revisionFailed reports that the revision of a set could not be stored, once, and sets when it is
// tried again.
func (c *Controller) revisionFailed(set *workv1alpha1.ManifestWorkReplicaSet, h *history, now time.Time, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	h.retry.attempts++
	h.retry.retryAt = now.Add(min(retryBackoff<<min(h.retry.attempts, 20), retryBackoffMax))
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		h.retry.retryAt = now.Add(noDefinitionRetry)
	}
	if h.retry.attempts > 1 {
		return
	}
	err = redaction.WithoutValues(err, false)
	c.cfg.Logger.Warn("storing the revision of a template failed, retrying", "set", set.Name, "namespace", set.Namespace, "error", err)
	c.event(set, corev1.EventTypeWarning, workv1alpha1.EventRevisionNotStored, "The rollout goes on, but cannot be undone to this template: %v", err)
}
