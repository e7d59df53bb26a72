package executor

import (
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/workwire/workwire/pkg/agent/internal/object"
)

// dependency is something that the rights of an account depend on: a user name, a group or a role.
type dependency struct {
	kind dependencyKind
	name types.NamespacedName // of a role: as in policy.roles; of others: without namespace
}

type dependencyKind byte

const (
	user dependencyKind = iota
	group
	role
)

// identity returns the user name and groups of an account.
func identity(account Account) []dependency {
	dependencies := []dependency{{kind: user, name: types.NamespacedName{Name: account.String()}}}
	for _, name := range account.Groups() {
		dependencies = append(dependencies, dependency{kind: group, name: types.NamespacedName{Name: name}})
	}
	return dependencies
}

// binding grants the rules of a role to subjects, which are users and groups.
type binding struct {
	role     types.NamespacedName
	subjects []dependency
}

// grantee is a user or group in a namespace, "" for the whole cluster.
type grantee struct {
	namespace string
	subject   dependency
}

// policy holds the RBAC objects of a cluster, indexed so that decisions and changes look only at
// related objects. ClusterRoles and ClusterRoleBindings have no namespace.
type policy struct {
	roles    map[types.NamespacedName][]rbacv1.PolicyRule
	bindings map[types.NamespacedName]binding
	bound    map[types.NamespacedName]sets.Set[types.NamespacedName] // role → bindings
	granted  map[grantee]sets.Set[types.NamespacedName]              // → bindings
}

func newPolicy() *policy {
	return &policy{
		roles:    map[types.NamespacedName][]rbacv1.PolicyRule{},
		bindings: map[types.NamespacedName]binding{},
		bound:    map[types.NamespacedName]sets.Set[types.NamespacedName]{},
		granted:  map[grantee]sets.Set[types.NamespacedName]{},
	}
}

// setRole adds or replaces a role and returns what that affects: nothing if its rules are the same.
func (p *policy) setRole(name types.NamespacedName, rules []rbacv1.PolicyRule) []dependency {
	if before, exists := p.roles[name]; exists && equality.Semantic.DeepEqual(before, rules) {
		return nil
	}
	p.roles[name] = rules
	return p.affected(name)
}

func (p *policy) deleteRole(name types.NamespacedName) []dependency {
	if _, exists := p.roles[name]; !exists {
		return nil
	}
	delete(p.roles, name)
	return p.affected(name)
}

// affected returns what a change of a role affects: itself, for accounts that are about to bind it,
// and the subjects that it is bound to.
func (p *policy) affected(name types.NamespacedName) []dependency {
	dependencies := []dependency{{kind: role, name: name}}
	for key := range p.bound[name] {
		dependencies = append(dependencies, p.bindings[key].subjects...)
	}
	return dependencies
}

// setBinding adds or replaces a binding and returns its former and new subjects: nothing if it is
// the same.
func (p *policy) setBinding(name types.NamespacedName, b binding) []dependency {
	before, exists := p.bindings[name]
	if exists && before.role == b.role && slices.Equal(before.subjects, b.subjects) {
		return nil
	}
	affected := append(p.deleteBinding(name), b.subjects...)
	p.bindings[name] = b
	insert(p.bound, b.role, name)
	for _, subject := range b.subjects {
		insert(p.granted, grantee{namespace: name.Namespace, subject: subject}, name)
	}
	return affected
}

func (p *policy) deleteBinding(name types.NamespacedName) []dependency {
	before := p.bindings[name]
	delete(p.bindings, name)
	remove(p.bound, before.role, name)
	for _, subject := range before.subjects {
		remove(p.granted, grantee{namespace: name.Namespace, subject: subject}, name)
	}
	return slices.Clone(before.subjects)
}

// allows is RBAC's decision: it reports whether a role that is bound to one of the subjects, in the
// whole cluster or in the object's namespace, has a rule that allows verb on the object. A role
// that does not exist allows nothing.
func (p *policy) allows(subjects []dependency, verb string, ref object.Ref) bool { //nolint:unparam // the tests ask for one verb
	for _, namespace := range slices.Compact([]string{"", ref.Namespace}) {
		for _, subject := range subjects {
			for name := range p.granted[grantee{namespace: namespace, subject: subject}] {
				rules := p.roles[p.bindings[name].role]
				if slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return ruleAllows(r, verb, ref) }) {
					return true
				}
			}
		}
	}
	return false
}

// ruleAllows reports whether a rule allows verb on an object. The object is never a subresource, so
// that "pods/status" or "*/status" in a rule does not match.
func ruleAllows(rule rbacv1.PolicyRule, verb string, ref object.Ref) bool {
	return has(rule.Verbs, rbacv1.VerbAll, verb) &&
		has(rule.APIGroups, rbacv1.APIGroupAll, ref.Group) &&
		has(rule.Resources, rbacv1.ResourceAll, ref.Resource) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, ref.Name))
}

func has(list []string, all, one string) bool {
	return slices.Contains(list, all) || slices.Contains(list, one)
}

// decodeRole returns the rules of a Role or ClusterRole.
func decodeRole(obj *unstructured.Unstructured) ([]rbacv1.PolicyRule, error) {
	var decoded rbacv1.Role // a ClusterRole's rules are the same
	fields := map[string]any{"rules": obj.Object["rules"]}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &decoded); err != nil {
		return nil, fmt.Errorf("read the rules of %s %s/%s: %w", obj.GetKind(), obj.GetNamespace(), obj.GetName(), err)
	}
	return decoded.Rules, nil
}

// decodeBinding returns the contents of a RoleBinding or ClusterRoleBinding. One that cannot grant
// rights has no subjects.
func decodeBinding(obj *unstructured.Unstructured) (binding, error) {
	var decoded rbacv1.RoleBinding // a ClusterRoleBinding's fields are the same
	fields := map[string]any{"roleRef": obj.Object["roleRef"], "subjects": obj.Object["subjects"]}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &decoded); err != nil {
		return binding{}, fmt.Errorf("read %s %s/%s: %w", obj.GetKind(), obj.GetNamespace(), obj.GetName(), err)
	}
	named, ok := referredRole(decoded.RoleRef, obj.GetNamespace())
	if !ok {
		return binding{}, nil
	}
	b := binding{role: named}
	for _, subject := range decoded.Subjects {
		if d, ok := subjectDependency(subject, obj.GetNamespace()); ok {
			b.subjects = append(b.subjects, d)
		}
	}
	return b, nil
}

// referredRole returns the role that a binding in namespace refers to.
func referredRole(ref rbacv1.RoleRef, namespace string) (types.NamespacedName, bool) {
	switch {
	case ref.Kind == "ClusterRole":
		return types.NamespacedName{Name: ref.Name}, true
	case ref.Kind == "Role" && namespace != "":
		return types.NamespacedName{Namespace: namespace, Name: ref.Name}, true
	}
	return types.NamespacedName{}, false
}

func subjectDependency(subject rbacv1.Subject, namespace string) (dependency, bool) {
	switch subject.Kind {
	case rbacv1.UserKind:
		return dependency{kind: user, name: types.NamespacedName{Name: subject.Name}}, true
	case rbacv1.GroupKind:
		return dependency{kind: group, name: types.NamespacedName{Name: subject.Name}}, true
	case rbacv1.ServiceAccountKind:
		if subject.Namespace != "" {
			namespace = subject.Namespace
		}
		account := Account{Namespace: namespace, Name: subject.Name}
		return dependency{kind: user, name: types.NamespacedName{Name: account.String()}}, namespace != ""
	}
	return dependency{}, false
}

// insert adds item to the set at key.
func insert[K, T comparable](index map[K]sets.Set[T], key K, item T) {
	if index[key] == nil {
		index[key] = sets.New[T]()
	}
	index[key].Insert(item)
}

// remove deletes item from the set at key, and an empty set from the index.
func remove[K, T comparable](index map[K]sets.Set[T], key K, item T) {
	if index[key].Delete(item); len(index[key]) == 0 {
		delete(index, key)
	}
}
