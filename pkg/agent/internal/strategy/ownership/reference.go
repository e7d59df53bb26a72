package ownership

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

const appliedManifestWork = "AppliedManifestWork"

// Reference returns the owner reference to an AppliedManifestWork that objects of a work carry. It
// is not a controller's and does not block deletion.
func Reference(name string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: workv1.GroupVersion.String(),
		Kind:       appliedManifestWork,
		Name:       name,
		UID:        uid,
	}
}

// IsWork reports whether a reference is to an AppliedManifestWork.
func IsWork(ref metav1.OwnerReference) bool {
	return ref.Kind == appliedManifestWork && group(ref.APIVersion) == workv1.GroupVersion.Group
}

func group(apiVersion string) string {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return apiVersion
	}
	return gv.Group
}

// sameOwner compares name, kind and group: the uid changes when the owner is recreated.
func sameOwner(a, b metav1.OwnerReference) bool {
	return a.Name == b.Name && a.Kind == b.Kind && group(a.APIVersion) == group(b.APIVersion)
}

// SetReference returns refs with owner if owned is true, without it otherwise, and whether they
// differ from refs. References of others are kept.
func SetReference(refs []metav1.OwnerReference, owner metav1.OwnerReference, owned bool) ([]metav1.OwnerReference, bool) {
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

// Has reports whether live has a reference to owner.
func Has(live *unstructured.Unstructured, owner types.UID) bool {
	return slices.ContainsFunc(live.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == owner })
}

// Shared reports whether a work other than owner owns the object too.
func Shared(live *unstructured.Unstructured, owner metav1.OwnerReference) bool {
	for _, ref := range live.GetOwnerReferences() {
		if IsWork(ref) && !sameOwner(ref, owner) {
			return true
		}
	}
	return false
}
