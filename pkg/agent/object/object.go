// Package object names objects on the agent's cluster and says what is known of
// them. It is what the steps of the agent hand to each other.
package object

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// AgentLabel is the label that every object the agent applies carries. Its value
// is [AgentHash] of the agent's id. One watch per resource type selects by it.
const AgentLabel = "workwire.dev/agent"

// HashAnnotation is the annotation in which an applied object carries the hash
// of the manifest that was last applied to it.
const HashAnnotation = "workwire.dev/manifest-hash"

// Ref names an object. Namespace is empty for cluster-scoped ones. A Ref is
// comparable.
type Ref struct {
	schema.GroupVersionResource
	Namespace string
	Name      string
}

// String gives resource.version.group namespace/name.
func (r Ref) String() string {
	kind := r.Resource
	if r.Group != "" {
		kind = fmt.Sprintf("%s.%s.%s", r.Resource, r.Version, r.Group)
	}
	if r.Namespace == "" {
		return kind + " " + r.Name
	}
	return kind + " " + r.Namespace + "/" + r.Name
}

// State says what is known about an object without asking the API server.
type State int

const (
	// Unknown: nothing is known, or what is known may be out of date.
	Unknown State = iota
	// Absent: no object of that name carries the agent's label. One without the
	// label may exist.
	Absent
	// Present: the object exists as it is given.
	Present
)

// Live is an object as last seen.
type Live struct {
	State State
	// Object is set if and only if State is Present. It is shared: read only. It
	// has no managedFields when it comes from a watch.
	Object *unstructured.Unstructured
}

// Newer reports whether resource version a is later than b. Versions that can
// not be compared, as those of an aggregated API may be, count as newer: what
// arrives last is believed.
func Newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil || order > 0
}
