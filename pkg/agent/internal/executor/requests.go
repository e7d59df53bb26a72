package executor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/workwire/workwire/pkg/agent/internal/object"
)

// review requests SubjectAccessReviews for the verbs of q until one is denied.
func (e *Executor[K]) review(ctx context.Context, account Account, q query) (decision, error) {
	for _, verb := range q.verbs() {
		if verb == verbGet && q.verb == "" { // it may have been asked before, to report the object
			read, _, err := e.decide(ctx, account, query{ref: q.ref, verb: verbGet}, time.Now())
			if err != nil || !read.allowed() {
				return read, err
			}
			continue
		}
		review := authorizationv1.SubjectAccessReview{
			TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SubjectAccessReview"},
			Spec: authorizationv1.SubjectAccessReviewSpec{User: account.String(), Groups: account.Groups(), ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Group: q.ref.Group, Version: q.ref.Version, Resource: q.ref.Resource, Namespace: q.ref.Namespace, Name: q.ref.Name,
			}},
		}
		if err := e.post(ctx, "subjectaccessreviews", &review); err != nil {
			return decision{}, fmt.Errorf("ask whether the executor %s may %s %s, by a SubjectAccessReview: %w", account, verb, q.ref, err)
		}
		status := review.Status
		if status.Allowed && !status.Denied {
			continue
		}
		// The decision is valid despite an evaluationError, for example a binding to a role that
		// does not exist.
		return decision{denied: verb, reason: cmp.Or(status.Reason, status.EvaluationError)}, nil
	}
	return decision{}, nil
}

// post creates a review, and replaces it by the answer.
func (e *Executor[K]) post(ctx context.Context, resource string, review any) error {
	body, err := json.Marshal(review)
	if err != nil {
		return err
	}
	result := e.config.Client.Post().AbsPath("/apis/authorization.k8s.io/v1", resource).
		SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx)
	if err := result.Error(); err != nil { // Raw does not decode it
		return err
	}
	answer, err := result.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, review)
}

// tryCreate is a dry run of creating an object as account. The API server refuses it if the object
// grants rights that the account does not have, unless the verbs escalate and bind allow that.
// Impersonating the user name of a service account includes its groups.
func (e *Executor[K]) tryCreate(ctx context.Context, account Account, ref object.Ref, desired *unstructured.Unstructured) (decision, error) {
	_, err := dynamic.New(e.as(account)).Resource(ref.GroupVersionResource).Namespace(ref.Namespace).Create(ctx, desired, metav1.CreateOptions{
		DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationIgnore,
	})
	switch {
	case err == nil || apierrors.IsAlreadyExists(err):
		return decision{}, nil
	case apierrors.IsForbidden(err) && !cannotImpersonate(err):
		return decision{denied: "create", reason: err.Error()}, nil
	}
	return decision{}, err
}
