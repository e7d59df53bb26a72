// Package object has the types by which the steps of the agent refer to objects of the cluster.
package object

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// AgentLabel is the label of every object that the agent applies. Its value is [AgentHash] of the
// agent's id. The watch of each resource type selects it.
const AgentLabel = "workwire.dev/agent"

// AgentHash returns the value of [AgentLabel] for an agent: the first 16 hex digits of the SHA-256
// of its id, so that any id fits into a label.
func AgentHash(agentID string) string {
	sum := sha256.Sum256([]byte(agentID))
	return hex.EncodeToString(sum[:])[:16]
}

// Ref refers to an object. Namespace is empty for a cluster-scoped object. A Ref is comparable.
type Ref struct {
	schema.GroupVersionResource
	Namespace string
	Name      string
}

// String returns resource.version.group namespace/name.
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

// State is what is known about an object without a request to the API server.
type State int

const (
	// Unknown: nothing is known, or it may be out of date.
	Unknown State = iota
	// Absent: no object of that name has the agent's label. An object without the label may exist.
	Absent
	// Present: the object exists.
	Present
)

// Live is an object as last seen.
type Live struct {
	State State
	// Object is set if and only if State is Present. It must not be changed. An object from a watch
	// has no managedFields.
	Object *unstructured.Unstructured
}

// Found returns what a read of the API server has shown: an object that does not exist is Absent, without an error.
func Found(obj *unstructured.Unstructured, err error) (Live, error) {
	switch {
	case err == nil:
		return Live{State: Present, Object: obj}, nil
	case apierrors.IsNotFound(err):
		return Live{State: Absent}, nil
	default:
		return Live{}, err
	}
}

// Newer reports whether resource version a is later than b. A version that cannot be compared, as
// those of an aggregated API may be, counts as newer, so that the last event wins.
func Newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil || order > 0
}

// Older reports whether resource version a is known to be before b.
func Older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// IsNotServed reports whether an error means that the API server does not serve the resource at
// all.
func IsNotServed(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
