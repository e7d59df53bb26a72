package kube

import (
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// FinalizerPatch returns the merge patch that adds finalizer to object. A merge patch replaces the
// whole list, so the API server returns a conflict if object has changed.
func FinalizerPatch(object metav1.Object, finalizer string) ([]byte, error) {
	var patch struct {
		Metadata struct {
			UID             types.UID `json:"uid"`
			ResourceVersion string    `json:"resourceVersion"`
			Finalizers      []string  `json:"finalizers"`
		} `json:"metadata"`
	}
	patch.Metadata.UID = object.GetUID()
	patch.Metadata.ResourceVersion = object.GetResourceVersion()
	patch.Metadata.Finalizers = append(slices.Clone(object.GetFinalizers()), finalizer)
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode the patch: %w", err)
	}
	return data, nil
}
