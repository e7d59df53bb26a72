// Package kinds finds, for the kind that a manifest names, the resource under
// which the agent's cluster serves it.
//
// Built-in and aggregated kinds are looked up by discovery of their one group and
// version, and remembered. Kinds of CustomResourceDefinitions are known from a
// watch on these, as soon as they are established: the cluster's discovery
// documents lag seconds behind. The watch also says when a kind has come or
// gone, so that works which wait for one are tried again at once.
//
//	resolver := kinds.New(kinds.Config{Client: client, Changed: retry, Logger: logger})
//	go resolver.Run(ctx)
//	mapping, err := resolver.Resolve(ctx, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
//	// mapping.Resource is apps/v1, deployments; mapping.Namespaced is true
package kinds

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Mapping is how the cluster serves a kind.
type Mapping struct {
	// Resource is the plural under which objects of the kind are reached.
	Resource schema.GroupVersionResource
	// Namespaced is false for cluster-scoped kinds.
	Namespaced bool
}

// UnknownKindError says that the cluster does not serve a kind in the version
// asked for. A CustomResourceDefinition may yet bring it.
type UnknownKindError struct {
	// Kind that was asked for.
	Kind schema.GroupVersionKind
}

// Error has the text that kubectl shows for such a kind.
func (e *UnknownKindError) Error() string {
	return fmt.Sprintf("the server doesn't have a resource type %q", e.Kind.Kind)
}
