package fleet

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
)

// fieldManager is the owner of what workctl writes.
const fieldManager = "workctl"

// Retry has a set that has gone back to an earlier template roll out its own again. changed is false if it has not
// gone back.
func (r *Reader) Retry(ctx context.Context, namespace, name string) (changed bool, err error) {
	client := r.Clients.WorkV1alpha1().ManifestWorkReplicaSets(namespace)
	set, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false, notFound(err, "set", name, "workctl get sets -A")
	}
	if _, changed = set.Annotations[workwirev1alpha1.ServedRevisionAnnotationKey]; !changed {
		return false, nil
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, workwirev1alpha1.ServedRevisionAnnotationKey)
	if _, err = client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}); err != nil {
		return false, notFound(err, "set", name, "workctl get sets -A")
	}
	return true, nil
}

// SetPaused pauses or resumes an object of a kind: work, cluster or set. changed is false if it was so
// already. namespace is ignored for clusters.
func (r *Reader) SetPaused(ctx context.Context, kind, namespace, name string, paused bool) (changed bool, err error) {
	var value any // null removes the annotation
	if paused {
		value = workv1.PausedValue
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{workv1.PausedAnnotationKey: value}}})
	if err != nil {
		return false, fmt.Errorf("encode the patch: %w", err)
	}
	var before, after metav1.Object
	options := metav1.PatchOptions{FieldManager: fieldManager}
	switch kind {
	case "work":
		client := r.Clients.WorkV1().ManifestWorks(namespace)
		if before, err = client.Get(ctx, name, metav1.GetOptions{}); err == nil {
			after, err = client.Patch(ctx, name, types.MergePatchType, patch, options)
		}
	case "cluster":
		client := r.Clients.ClusterV1().ManagedClusters()
		if before, err = client.Get(ctx, name, metav1.GetOptions{}); err == nil {
			after, err = client.Patch(ctx, name, types.MergePatchType, patch, options)
		}
	default:
		client := r.Clients.WorkV1alpha1().ManifestWorkReplicaSets(namespace)
		if before, err = client.Get(ctx, name, metav1.GetOptions{}); err == nil {
			after, err = client.Patch(ctx, name, types.MergePatchType, patch, options)
		}
	}
	if err != nil {
		return false, notFound(err, kind, name, "workctl get "+kind+"s")
	}
	return before.GetResourceVersion() != after.GetResourceVersion(), nil
}
