package executor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/workwire/workwire/pkg/agent/object"
)

// review requests SubjectAccessReviews for the verbs of q until one is denied.
func (e *Executor[K]) review(ctx context.Context, account Account, q query) (decision, error) {
	for _, verb := range q.verbs() {
		status, err := e.postReview(ctx, authorizationv1.SubjectAccessReviewSpec{
			User:   account.String(),
			Groups: account.Groups(),
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Group: q.ref.Group, Version: q.ref.Version, Resource: q.ref.Resource,
				Namespace: q.ref.Namespace, Name: q.ref.Name,
			},
		})
		if err != nil {
			return decision{}, fmt.Errorf("ask whether the executor %s may %s %s, by a SubjectAccessReview: %w", account, verb, q.ref, err)
		}
		if status.Allowed && !status.Denied {
			continue
		}
		// The decision is valid despite an evaluationError, for example a binding to a role that
		// does not exist.
		return decision{denied: verb, reason: cmp.Or(status.Reason, status.EvaluationError)}, nil
	}
	return decision{}, nil
}

func (e *Executor[K]) postReview(
	ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec,
) (authorizationv1.SubjectAccessReviewStatus, error) {
	review := authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SubjectAccessReview"}, Spec: spec,
	}
	body, err := json.Marshal(review)
	if err != nil {
		return review.Status, err
	}
	result := e.config.Client.Post().AbsPath("/apis/authorization.k8s.io/v1/subjectaccessreviews").
		SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx)
	if err := result.Error(); err != nil { // Raw does not decode it
		return review.Status, err
	}
	answer, err := result.Raw()
	if err != nil {
		return review.Status, err
	}
	err = json.Unmarshal(answer, &review)
	return review.Status, err
}

// tryCreate is a dry run of creating an object as account. The API server refuses it if the object
// grants rights that the account does not have, unless the verbs escalate and bind allow that.
// Impersonating the user name of a service account includes its groups.
func (e *Executor[K]) tryCreate(ctx context.Context, account Account, ref object.Ref, body []byte) (decision, error) {
	segments := []string{"/apis", ref.Group, ref.Version}
	if ref.Namespace != "" {
		if errs := content.IsPathSegmentName(ref.Namespace); len(errs) > 0 {
			return decision{}, fmt.Errorf("%q cannot name a namespace: %s", ref.Namespace, errs[0])
		}
		segments = append(segments, "namespaces", ref.Namespace)
	}
	err := e.config.Client.Post().
		AbsPath(append(segments, ref.Resource)...).
		SetHeader("Impersonate-User", account.String()).
		SetHeader("Content-Type", runtime.ContentTypeJSON).
		Param("dryRun", metav1.DryRunAll).
		Param("fieldValidation", metav1.FieldValidationIgnore).
		Body(body).
		Do(ctx).Error()
	switch {
	case err == nil || apierrors.IsAlreadyExists(err):
		return decision{}, nil
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), `" cannot impersonate`):
		// The agent, not the account, lacks a right; see docs/executor.md.
		return decision{}, fmt.Errorf("try to create %s as the executor %s: the agent may not impersonate it; "+
			"give the agent the verb impersonate on serviceaccounts: %w", ref, account, err)
	case apierrors.IsForbidden(err):
		return decision{denied: "create", reason: err.Error()}, nil
	}
	return decision{}, err
}
