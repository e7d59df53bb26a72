package kube

import (
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// JSONPatch is a JSON patch (RFC 6902).
type JSONPatch []JSONPatchOperation

// JSONPatchOperation is one operation of a [JSONPatch]. Value is left out when it is nil.
type JSONPatchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Encode returns the patch as JSON.
func (p JSONPatch) Encode() ([]byte, error) {
	data, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode the patch: %w", err)
	}
	return data, nil
}

// TestUID returns the operation that makes a patch fail on any object but the one with uid. A uid
// in a merge patch does not do for the status of a custom resource: API servers ignore all metadata
// there.
func TestUID(uid types.UID) JSONPatchOperation {
	return JSONPatchOperation{Op: "test", Path: "/metadata/uid", Value: uid}
}

// StatusPatch returns the patch that replaces the status of the object with uid, and of no other
// object of its name.
func StatusPatch(uid types.UID, status any) JSONPatch {
	return JSONPatch{TestUID(uid), {Op: "add", Path: "/status", Value: status}}
}

// AtVersion returns the beginning of a patch of object that fails with a conflict if object has changed since.
func AtVersion(object metav1.Object) JSONPatch {
	return JSONPatch{{Op: "replace", Path: "/metadata/resourceVersion", Value: object.GetResourceVersion()}}
}

// RemoveFinalizerPatch returns the patch that removes finalizer, and no other, from object; nil
// when object does not have it. It fails on an object of another UID, and when the finalizer stands
// elsewhere in the list, but not because of any other change.
func RemoveFinalizerPatch(object metav1.Object, finalizer string) JSONPatch {
	index := slices.Index(object.GetFinalizers(), finalizer)
	if index < 0 {
		return nil
	}
	path := fmt.Sprintf("/metadata/finalizers/%d", index)
	return JSONPatch{TestUID(object.GetUID()), {Op: "test", Path: path, Value: finalizer}, {Op: "remove", Path: path}}
}

// FinalizerPatch returns the merge patch that adds finalizer to object. A merge patch replaces the
// whole list, so the API server returns a conflict if object has changed.
func FinalizerPatch(object metav1.Object, finalizer string) ([]byte, error) {
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": object.GetUID(), "resourceVersion": object.GetResourceVersion(),
		"finalizers": append(slices.Clone(object.GetFinalizers()), finalizer),
	}})
	if err != nil {
		return nil, fmt.Errorf("encode the patch: %w", err)
	}
	return data, nil
}
