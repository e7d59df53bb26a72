package strategy

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

const appliedKind = "AppliedManifestWork"

// Owner is the owner reference that objects of a work carry: not a controller's,
// and it blocks nothing.
func Owner(name string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: workv1.GroupVersion.String(),
		Kind:       appliedKind,
		Name:       name,
		UID:        uid,
	}
}

func group(apiVersion string) string {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return apiVersion
	}
	return gv.Group
}

func isApplied(ref metav1.OwnerReference) bool {
	return ref.Kind == appliedKind && group(ref.APIVersion) == workv1.GroupVersion.Group
}

// sameOwner matches references as they are merged: by name, kind and group.
func sameOwner(a, b metav1.OwnerReference) bool {
	return a.Name == b.Name && a.Kind == b.Kind && group(a.APIVersion) == group(b.APIVersion)
}

// withOwner gives refs with owner among them, or without it, and whether that is
// a change. References of others stay as they are.
func withOwner(refs []metav1.OwnerReference, owner metav1.OwnerReference, owned bool) ([]metav1.OwnerReference, bool) {
	kept := make([]metav1.OwnerReference, 0, len(refs)+1)
	var found, changed bool
	for _, ref := range refs {
		switch {
		case !sameOwner(ref, owner):
			kept = append(kept, ref)
		case owned && !found:
			found = true
			changed = changed || ref.UID != owner.UID
			kept = append(kept, owner)
		default:
			changed = true
		}
	}
	if owned && !found {
		return append(kept, owner), true
	}
	return kept, changed
}

// shared says whether another work owns the object too.
func shared(live *unstructured.Unstructured, owner metav1.OwnerReference) bool {
	for _, ref := range live.GetOwnerReferences() {
		if isApplied(ref) && !sameOwner(ref, owner) {
			return true
		}
	}
	return false
}
