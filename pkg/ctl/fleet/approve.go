package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/ctl/cli"
)

// Approve approves a stage of the rollout of a set; an empty stage is the first of its RolloutPlan that waits for an
// approval. Only revision is approved, 0 for the one that the set has. It fails if the plan has no such stage, and drops
// approvals of earlier revisions.
func (r *Reader) Approve(ctx context.Context, namespace, name, stage string, revision int64, reason string) (approval workwirev1alpha1.Approval, err error) {
	user, err := r.User(ctx)
	if err != nil {
		return approval, err
	}
	client := r.Clients.WorkV1alpha1().ManifestWorkReplicaSets(namespace)
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		set, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return notFound(err, "set", name, "workctl get sets -A")
		}
		approvals, err := workwirev1alpha1.ApprovalsOf(set.Annotations)
		if err != nil {
			return cli.Errorf("%w", err).Do("mend or remove the annotation")
		}
		approval = workwirev1alpha1.Approval{Stage: stage, By: user, Reason: reason, Time: metav1.Now()}
		if approval.Revision, err = approvable(set, revision); err != nil {
			return err
		}
		if approval.Stage, err = r.stage(ctx, set, stage, approval.Revision, approvals); err != nil {
			return err
		}
		kept := slices.DeleteFunc(approvals, func(a workwirev1alpha1.Approval) bool {
			return a.Revision < approval.Revision || a.Revision == approval.Revision && a.Stage == approval.Stage
		})
		text, err := json.Marshal(append(kept, approval))
		if err != nil {
			return fmt.Errorf("encode the approvals: %w", err)
		}
		return r.AnnotateSet(ctx, set, metav1.Preconditions{ResourceVersion: &set.ResourceVersion}, workwirev1alpha1.ApprovalsAnnotationKey, string(text))
	})
	if of := (*cli.Error)(nil); err == nil || errors.As(err, &of) {
		return approval, err
	}
	return approval, cli.APIError("approve the rollout", err)
}

// User returns the name that the hub's API server knows the user by.
func (r *Reader) User(ctx context.Context) (string, error) {
	me, err := r.Kube.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", cli.APIError("ask the API server who you are", err)
	}
	return me.Status.UserInfo.Username, nil
}

// AnnotateSet sets an annotation of a set, if it is still the one of the preconditions.
func (r *Reader) AnnotateSet(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet, only metav1.Preconditions, key, value string) error {
	var patch struct {
		Metadata struct {
			metav1.Preconditions
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	patch.Metadata.Preconditions, patch.Metadata.Annotations = only, map[string]string{key: value}
	data, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode the patch: %w", err)
	}
	_, err = r.Clients.WorkV1alpha1().ManifestWorkReplicaSets(set.Namespace).Patch(ctx, set.Name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: fieldManager})
	return err
}

// approvable returns the number of the revision that a set has. It fails if that is another than the one wanted, or the hub
// has not numbered the template yet.
func approvable(set *workv1alpha1.ManifestWorkReplicaSet, wanted int64) (int64, error) {
	has := workwirev1alpha1.RevisionOf(set.Annotations, workwirev1alpha1.RevisionAnnotationKey)
	switch {
	case has == 0:
		return 0, cli.Errorf("the template of set %s/%s has no revision yet", set.Namespace, set.Name).Do("try again when the hub has stored it")
	case wanted != 0 && wanted != has:
		return 0, cli.Errorf("set %s/%s is at revision %d, not %d", set.Namespace, set.Name, has, wanted).
			Do("see what has changed: workctl rollout history %s -n %s", set.Name, set.Namespace)
	}
	return has, nil
}

// stage returns the stage to approve, see [Reader.Approve].
func (r *Reader) stage(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet, stage string, revision int64, approvals workwirev1alpha1.Approvals) (string, error) {
	if stage == workwirev1alpha1.PreviewStage { // which every set may have
		return stage, nil
	}
	name := set.Annotations[workv1alpha1.RolloutPlanAnnotationKey]
	if name == "" {
		return "", cli.Errorf("set %s/%s has no RolloutPlan", set.Namespace, set.Name).Do("name one in its annotation %s", workv1alpha1.RolloutPlanAnnotationKey)
	}
	plan, err := r.Clients.WorkwireV1alpha1().RolloutPlans(set.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", cli.APIError("get the RolloutPlan "+name, err)
	}
	var waiting []string
	for _, s := range plan.Spec.Stages {
		if s.Approval != "" {
			waiting = append(waiting, s.Name)
		}
	}
	switch {
	case len(waiting) == 0:
		return "", cli.Errorf("no stage of RolloutPlan %s/%s needs an approval", set.Namespace, name)
	case stage != "" && !slices.Contains(waiting, stage):
		return "", cli.Errorf("RolloutPlan %s/%s has no stage %s that needs an approval", set.Namespace, name, stage).Do("name one of %s", strings.Join(waiting, ", "))
	case stage != "":
		return stage, nil
	}
	for _, s := range waiting {
		if approvals.Of(revision, s) == nil {
			return s, nil
		}
	}
	return "", cli.Errorf("all stages of revision %d are approved: %s", revision, strings.Join(waiting, ", "))
}
