package executor

import (
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/object"
)

// matter is something on which rights depend: a user's name, a group, or a role.
type matter struct {
	kind matterKind
	name types.NamespacedName // of a role: as in policy.roles; of others: without namespace
}

type matterKind byte

const (
	user matterKind = iota
	group
	role
)

// identity gives the matters that make an account who it is.
func identity(account Account) []matter {
	matters := []matter{{kind: user, name: types.NamespacedName{Name: account.String()}}}
	for _, name := range account.Groups() {
		matters = append(matters, matter{kind: group, name: types.NamespacedName{Name: name}})
	}
	return matters
}

// binding gives the rules of a role to subjects, which are users and groups.
type binding struct {
	role     types.NamespacedName
	subjects []matter
}

// holding is a user or group in a namespace, "" for the whole cluster.
type holding struct {
	namespace string
	subject   matter
}

type set[T comparable] map[T]struct{}

// policy is the RBAC objects of a cluster, indexed so that neither a question nor
// a change has to look at those that do not concern it. ClusterRoles and
// ClusterRoleBindings are those without a namespace.
type policy struct {
	roles    map[types.NamespacedName][]rbacv1.PolicyRule
	bindings map[types.NamespacedName]binding
	bound    map[types.NamespacedName]set[types.NamespacedName] // role → bindings
	held     map[holding]set[types.NamespacedName]              // → bindings
}

func newPolicy() *policy {
	return &policy{
		roles:    map[types.NamespacedName][]rbacv1.PolicyRule{},
		bindings: map[types.NamespacedName]binding{},
		bound:    map[types.NamespacedName]set[types.NamespacedName]{},
		held:     map[holding]set[types.NamespacedName]{},
	}
}

// setRole puts in a role and gives what is concerned, nothing if its rules are as
// they were.
func (p *policy) setRole(name types.NamespacedName, rules []rbacv1.PolicyRule) []matter {
	if before, exists := p.roles[name]; exists && equality.Semantic.DeepEqual(before, rules) {
		return nil
	}
	p.roles[name] = rules
	return p.concerned(name)
}

func (p *policy) dropRole(name types.NamespacedName) []matter {
	if _, exists := p.roles[name]; !exists {
		return nil
	}
	delete(p.roles, name)
	return p.concerned(name)
}

// concerned gives what a change of a role concerns: itself, for who is about to
// bind it, and the subjects that it is bound to.
func (p *policy) concerned(name types.NamespacedName) []matter {
	matters := []matter{{kind: role, name: name}}
	for key := range p.bound[name] {
		matters = append(matters, p.bindings[key].subjects...)
	}
	return matters
}

// setBinding puts in a binding and gives the subjects that it had and has,
// nothing if it is as it was.
func (p *policy) setBinding(name types.NamespacedName, b binding) []matter {
	before, exists := p.bindings[name]
	if exists && before.role == b.role && slices.Equal(before.subjects, b.subjects) {
		return nil
	}
	concerned := append(p.dropBinding(name), b.subjects...)
	p.bindings[name] = b
	insert(p.bound, b.role, name)
	for _, subject := range b.subjects {
		insert(p.held, holding{namespace: name.Namespace, subject: subject}, name)
	}
	return concerned
}

func (p *policy) dropBinding(name types.NamespacedName) []matter {
	before := p.bindings[name]
	delete(p.bindings, name)
	remove(p.bound, before.role, name)
	for _, subject := range before.subjects {
		remove(p.held, holding{namespace: name.Namespace, subject: subject}, name)
	}
	return slices.Clone(before.subjects)
}

// allows is RBAC's decision: whether a role that is bound to one of the subjects,
// in the whole cluster or in the object's namespace, has a rule that allows verb
// on the object. A role that does not exist allows nothing.
func (p *policy) allows(subjects []matter, verb string, ref object.Ref) bool {
	for _, namespace := range slices.Compact([]string{"", ref.Namespace}) {
		for _, subject := range subjects {
			for name := range p.held[holding{namespace: namespace, subject: subject}] {
				rules := p.roles[p.bindings[name].role]
				if slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return ruleAllows(r, verb, ref) }) {
					return true
				}
			}
		}
	}
	return false
}

// ruleAllows says whether a rule allows verb on an object. That is never a
// subresource, so a rule's "pods/status" or "*/status" allows none of it.
func ruleAllows(rule rbacv1.PolicyRule, verb string, ref object.Ref) bool {
	return has(rule.Verbs, rbacv1.VerbAll, verb) &&
		has(rule.APIGroups, rbacv1.APIGroupAll, ref.Group) &&
		has(rule.Resources, rbacv1.ResourceAll, ref.Resource) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, ref.Name))
}

func has(list []string, all, one string) bool {
	return slices.Contains(list, all) || slices.Contains(list, one)
}

// decodeRole reads the rules of a Role or ClusterRole.
func decodeRole(obj *unstructured.Unstructured) ([]rbacv1.PolicyRule, error) {
	var decoded rbacv1.Role // a ClusterRole's rules are the same
	fields := map[string]any{"rules": obj.Object["rules"]}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &decoded); err != nil {
		return nil, fmt.Errorf("read the rules of %s %s/%s: %w", obj.GetKind(), obj.GetNamespace(), obj.GetName(), err)
	}
	return decoded.Rules, nil
}

// decodeBinding reads a RoleBinding or ClusterRoleBinding. One that can not give
// rights has no subjects.
func decodeBinding(obj *unstructured.Unstructured) (binding, error) {
	var decoded rbacv1.RoleBinding // a ClusterRoleBinding's fields are the same
	fields := map[string]any{"roleRef": obj.Object["roleRef"], "subjects": obj.Object["subjects"]}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &decoded); err != nil {
		return binding{}, fmt.Errorf("read %s %s/%s: %w", obj.GetKind(), obj.GetNamespace(), obj.GetName(), err)
	}
	named, ok := roleNamed(decoded.RoleRef, obj.GetNamespace())
	if !ok {
		return binding{}, nil
	}
	b := binding{role: named}
	for _, subject := range decoded.Subjects {
		if m, ok := subjectMatter(subject, obj.GetNamespace()); ok {
			b.subjects = append(b.subjects, m)
		}
	}
	return b, nil
}

// roleNamed gives the role that a binding in namespace refers to.
func roleNamed(ref rbacv1.RoleRef, namespace string) (types.NamespacedName, bool) {
	switch {
	case ref.Kind == "ClusterRole":
		return types.NamespacedName{Name: ref.Name}, true
	case ref.Kind == "Role" && namespace != "":
		return types.NamespacedName{Namespace: namespace, Name: ref.Name}, true
	}
	return types.NamespacedName{}, false
}

func subjectMatter(subject rbacv1.Subject, namespace string) (matter, bool) {
	switch subject.Kind {
	case rbacv1.UserKind:
		return matter{kind: user, name: types.NamespacedName{Name: subject.Name}}, true
	case rbacv1.GroupKind:
		return matter{kind: group, name: types.NamespacedName{Name: subject.Name}}, true
	case rbacv1.ServiceAccountKind:
		if subject.Namespace != "" {
			namespace = subject.Namespace
		}
		account := Account{Namespace: namespace, Name: subject.Name}
		return matter{kind: user, name: types.NamespacedName{Name: account.String()}}, namespace != ""
	}
	return matter{}, false
}

func insert[K, T comparable](sets map[K]set[T], key K, item T) {
	if sets[key] == nil {
		sets[key] = set[T]{}
	}
	sets[key][item] = struct{}{}
}

func remove[K, T comparable](sets map[K]set[T], key K, item T) {
	delete(sets[key], item)
	if len(sets[key]) == 0 {
		delete(sets, key)
	}
}
