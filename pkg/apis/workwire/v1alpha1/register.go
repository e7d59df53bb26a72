package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of this package.
const GroupName = "workwire.dev"

// The group and version of this package. They are constants in effect.
var (
	// GroupVersion is workwire.dev/v1alpha1.
	GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}
	// SchemeGroupVersion is GroupVersion under the name that generated clients use.
	SchemeGroupVersion = GroupVersion
)

// AddToScheme registers the types of this package, and those of metav1 for its group and version,
// with a scheme. The error is nil; the signature is the one that runtime.SchemeBuilder takes.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&ManifestWorkReplicaSetRevision{}, &ManifestWorkReplicaSetRevisionList{},
		&WorkOverride{}, &WorkOverrideList{},
		&RolloutPlan{}, &RolloutPlanList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// Resource gives the group-qualified name of a resource of this group, such as
// "manifestworkreplicasetrevisions".
func Resource(resource string) schema.GroupResource {
	return schema.GroupResource{Group: GroupName, Resource: resource}
}
