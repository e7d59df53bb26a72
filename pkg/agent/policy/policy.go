// Package policy decides what works may do on a cluster, by a file of the cluster's owner that no
// source can loosen (docs/owner-policy.md).
//
//	rules, err := policy.Open(policy.Config{File: path})
//	...
//	err = rules.Get(time.Now()).RefuseObject(ref) // a *RefusedError, nil if the owner allows it
//
// Decisions are those of a [Policy], which does no I/O; a [File] reads one again when it changes.
package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/internal/executor"
	"github.com/workwire/workwire/pkg/agent/internal/object"
)

// The rules of a policy, as its file and the messages name them.
const (
	RequireSealed           = "requireSealed"
	RequireExecutor         = "requireExecutor"
	AllowedExecutors        = "allowedExecutors"
	AllowedResources        = "allowedResources"
	DeniedResources         = "deniedResources"
	AllowedNamespaces       = "allowedNamespaces"
	AllowedClusterResources = "allowedClusterResources"
)

var rules = []string{RequireSealed, RequireExecutor, AllowedExecutors, AllowedResources, DeniedResources, AllowedNamespaces, AllowedClusterResources}

// Policy is what works may do. A rule that is nil or false allows everything. A nil Policy has no rules.
// It does not change, and is safe for concurrent use.
type Policy struct {
	// RequireSealed refuses works whose spec did not arrive sealed.
	RequireSealed bool `json:"requireSealed,omitempty"`
	// RequireExecutor refuses works without an executor.
	RequireExecutor bool `json:"requireExecutor,omitempty"`
	// AllowedExecutors are ServiceAccounts as NAMESPACE/NAME. Works with another executor, or without
	// one, are refused.
	AllowedExecutors []string `json:"allowedExecutors,omitempty"`
	// AllowedResources are the only ones, as RESOURCE.GROUP.
	AllowedResources []string `json:"allowedResources,omitempty"`
	// DeniedResources are refused, also if AllowedResources has them.
	DeniedResources []string `json:"deniedResources,omitempty"`
	// AllowedNamespaces are the only ones. Objects without a namespace are then refused, unless
	// AllowedClusterResources has them; of Namespaces, those with these names are allowed.
	AllowedNamespaces []string `json:"allowedNamespaces,omitempty"`
	// AllowedClusterResources are the only ones whose objects have no namespace, as RESOURCE.GROUP.
	AllowedClusterResources []string `json:"allowedClusterResources,omitempty"`
}

// Work is what a policy has to know of a work.
type Work struct {
	Executor *executor.Account // nil: none
	Sealed   bool              // its spec arrived sealed
}

// RefusedError is the error of what a policy does not allow. Its text goes into the conditions of
// manifests.
type RefusedError struct {
	// Rule that refuses, a constant of this package.
	Rule string
	// What is refused and why, such as "resource secrets is not allowed".
	What string
}

// Error returns the text for the condition.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("refused by the policy of the cluster's owner: %s (rule %s)", e.What, e.Rule)
}

// Refused reports whether err is that of a policy.
func Refused(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused)
}

// RefuseWork returns why nothing that the spec of a work says may be done, a [*RefusedError]; nil if it may.
func (p *Policy) RefuseWork(w Work) error {
	switch {
	case p == nil:
		return nil
	case p.RequireSealed && !w.Sealed:
		return &RefusedError{Rule: RequireSealed, What: "the spec of the work is not sealed"}
	case w.Executor == nil && p.AllowedExecutors != nil:
		return &RefusedError{Rule: AllowedExecutors, What: "the work has no executor"}
	case w.Executor == nil && p.RequireExecutor:
		return &RefusedError{Rule: RequireExecutor, What: "the work has no executor"}
	case w.Executor != nil && p.AllowedExecutors != nil:
		name := w.Executor.Namespace + "/" + w.Executor.Name
		if !slices.ContainsFunc(p.AllowedExecutors, func(pattern string) bool { return matchesExecutor(pattern, w.Executor) }) {
			return &RefusedError{Rule: AllowedExecutors, What: "executor " + name + " is not allowed"}
		}
	}
	return nil
}

// RefuseObject returns why works may neither see nor change an object, a [*RefusedError]; nil if they
// may.
func (p *Policy) RefuseObject(ref object.Ref) error {
	if p == nil {
		return nil
	}
	resource := ref.GroupResource()
	switch {
	case slices.ContainsFunc(p.DeniedResources, func(pattern string) bool { return matchesResource(pattern, resource) }):
		return &RefusedError{Rule: DeniedResources, What: fmt.Sprintf("resource %s is denied", resource)}
	case p.AllowedResources != nil && !slices.ContainsFunc(p.AllowedResources, func(pattern string) bool { return matchesResource(pattern, resource) }):
		return &RefusedError{Rule: AllowedResources, What: fmt.Sprintf("resource %s is not allowed", resource)}
	case ref.Namespace == "":
		return p.refuseClusterScoped(resource, ref.Name)
	default:
		return p.refuseNamespace(ref.Namespace)
	}
}

func (p *Policy) refuseClusterScoped(resource schema.GroupResource, name string) error {
	if p.AllowedNamespaces == nil && p.AllowedClusterResources == nil {
		return nil
	}
	if !slices.ContainsFunc(p.AllowedClusterResources, func(pattern string) bool { return matchesResource(pattern, resource) }) {
		return &RefusedError{Rule: AllowedClusterResources, What: fmt.Sprintf("resource %s, whose objects have no namespace, is not allowed", resource)}
	}
	if resource == (schema.GroupResource{Resource: "namespaces"}) { // all that is in it goes with it
		return p.refuseNamespace(name)
	}
	return nil
}

func (p *Policy) refuseNamespace(name string) error {
	if p.AllowedNamespaces == nil || slices.ContainsFunc(p.AllowedNamespaces, func(pattern string) bool { return matches(pattern, name) }) {
		return nil
	}
	return &RefusedError{Rule: AllowedNamespaces, What: fmt.Sprintf("namespace %s is not allowed", name)}
}

// matches reports whether a name has a pattern: that name, or a start of it and "*".
func matches(pattern, name string) bool {
	if start, open := strings.CutSuffix(pattern, "*"); open {
		return strings.HasPrefix(name, start)
	}
	return pattern == name
}

func matchesExecutor(pattern string, account *executor.Account) bool {
	namespace, name, _ := strings.Cut(pattern, "/")
	return matches(namespace, account.Namespace) && matches(name, account.Name)
}

// matchesResource reports whether a resource has a pattern: RESOURCE, RESOURCE.GROUP, *.GROUP or *,
// which is every resource of every group.
func matchesResource(pattern string, resource schema.GroupResource) bool {
	if pattern == "*" {
		return true
	}
	want := schema.ParseGroupResource(pattern)
	return want.Group == resource.Group && (want.Resource == "*" || want.Resource == resource.Resource)
}
