package preview

import (
	"context"
	"encoding/json"
	"maps"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/fleet"
	"github.com/workwire/workwire/pkg/hub/previews"
)

// User returns the name of the user of the hub's API, empty if it does not tell.
func User(ctx context.Context, r *fleet.Reader) string {
	review, err := r.Kube.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return ""
	}
	return review.Status.UserInfo.Username
}

// Store stores a record on the set. It fails if there is another set of the name by now.
func (p *Plan) Store(ctx context.Context, r *fleet.Reader, record *previews.Record) error {
	value, err := record.Value()
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": p.Set.UID, "annotations": map[string]string{workv1alpha1.PreviewedAnnotationKey: value},
	}})
	if err != nil {
		return err
	}
	_, err = r.Clients.WorkV1alpha1().ManifestWorkReplicaSets(p.Set.Namespace).Patch(ctx, p.Set.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: "workctl"})
	return cli.APIError("annotate the set "+p.Set.Name, err)
}

// annotatedWith returns the annotations of the set with this record.
func (p *Plan) annotatedWith(value string) map[string]string {
	annotations := maps.Clone(p.Set.Annotations)
	if annotations == nil {
		annotations = make(map[string]string, 1)
	}
	annotations[workv1alpha1.PreviewedAnnotationKey] = value
	return annotations
}
