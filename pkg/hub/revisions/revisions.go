package revisions

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
)

// Revision is a stored template of a set.
type Revision = workwirev1alpha1.ManifestWorkReplicaSetRevision

// List returns the revisions of a set in the order of their numbers. It leaves out those of an
// earlier set of the same name.
func List(ctx context.Context, clients versioned.Interface, set *workv1alpha1.ManifestWorkReplicaSet) ([]Revision, error) {
	selector := labels.SelectorFromSet(labels.Set{workwirev1alpha1.ReplicaSetLabelKey: set.Name}).String()
	list, err := clients.WorkwireV1alpha1().ManifestWorkReplicaSetRevisions(set.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("list the revisions of ManifestWorkReplicaSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	own := slices.DeleteFunc(list.Items, func(r Revision) bool { return !metav1.IsControlledBy(&r, set) })
	slices.SortFunc(own, func(a, b Revision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.Name, b.Name))
	})
	return own, nil
}

// Hash returns the hash of a template as the API server returns it: 32 hexadecimal digits. It fails
// on a template that is no JSON.
func Hash(template *workv1.ManifestWorkSpec) (string, error) {
	data, err := json.Marshal(template)
	if err != nil {
		return "", fmt.Errorf("encode the template: %w", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16]), nil
}

// New returns the revision of the current template of set, which has this hash.
func New(set *workv1alpha1.ManifestWorkReplicaSet, hash string, number int64) *Revision {
	revision := &Revision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: set.Name + "-" + hash[:16],
			Labels: map[string]string{workwirev1alpha1.ReplicaSetLabelKey: set.Name, workwirev1alpha1.TemplateHashLabelKey: hash},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: workv1alpha1.GroupVersion.String(), Kind: "ManifestWorkReplicaSet", Name: set.Name, UID: set.UID, Controller: new(true),
			}},
		},
		Set: set.Name, Revision: number, Template: set.Spec.ManifestWorkTemplate,
	}
	if cause := set.Annotations[workwirev1alpha1.ChangeCauseAnnotationKey]; cause != "" {
		revision.Annotations = map[string]string{workwirev1alpha1.ChangeCauseAnnotationKey: cause}
	}
	return revision
}
