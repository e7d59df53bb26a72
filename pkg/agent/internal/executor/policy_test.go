package executor

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/workwire/workwire/pkg/agent/internal/object"
)

func TestRuleAllows(t *testing.T) {
	t.Parallel()
	all := []string{"*"}
	rule := func(verbs, groups, resources []string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: verbs, APIGroups: groups, Resources: resources, ResourceNames: names}
	}
	for name, c := range map[string]struct {
		rule    rbacv1.PolicyRule
		allowed bool
	}{
		"exact":                 {rule([]string{"get", "create"}, []string{"", "apps"}, []string{"pods", "deployments"}), true},
		"all":                   {rule(all, all, all), true},
		"no verb":               {rule(nil, all, all), false},
		"another verb":          {rule([]string{"update", "delete"}, all, all), false},
		"a verb's beginning":    {rule([]string{"creat", "create*"}, all, all), false},
		"another group":         {rule(all, []string{""}, all), false},
		"no group":              {rule(all, nil, all), false},
		"another resource":      {rule(all, all, []string{"pods"}), false},
		"no resource":           {rule(all, all, nil), false},
		"a subresource":         {rule(all, all, []string{"deployments/status"}), false},
		"all of a subresource":  {rule(all, all, []string{"*/status"}), false},
		"all in a resource":     {rule(all, all, []string{"deployments/*"}), false},
		"case":                  {rule(all, all, []string{"Deployments"}), false},
		"the name":              {rule(all, all, all, "other", "web"), true},
		"another name":          {rule(all, all, all, "other"), false},
		"a star as name":        {rule(all, all, all, "*"), false},
		"an empty name":         {rule(all, all, all, ""), false},
		"of non-resource paths": {rbacv1.PolicyRule{Verbs: all, NonResourceURLs: all}, false},
	} {
		ref := object.Ref{GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, Namespace: "a", Name: "web"}
		if got := ruleAllows(c.rule, "create", ref); got != c.allowed {
			t.Errorf("%s: allowed %t", name, got)
		}
	}
}

func named(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// toUnstructured makes an RBAC object as a watch delivers it.
func toUnstructured(t testing.TB, typed any) *unstructured.Unstructured {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: fields}
}

func decodedBinding(t testing.TB, namespace string, ref rbacv1.RoleRef, subjects ...rbacv1.Subject) binding {
	t.Helper()
	typed := &rbacv1.RoleBinding{RoleRef: ref, Subjects: subjects}
	typed.Namespace, typed.Name = namespace, "b"
	b, err := decodeBinding(toUnstructured(t, typed))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWhoIsBound(t *testing.T) {
	t.Parallel()
	roleRef := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "r"}
	clusterRoleRef := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "r"}
	serviceAccount := func(namespace, name string) rbacv1.Subject {
		return rbacv1.Subject{Kind: "ServiceAccount", Namespace: namespace, Name: name}
	}
	subject := func(kind, name string) rbacv1.Subject {
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	}
	ref := object.Ref{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespace: "a", Name: "x"}
	for name, c := range map[string]struct {
		namespace string // of the binding
		ref       rbacv1.RoleRef
		subject   rbacv1.Subject
		allowed   bool
	}{
		"account":                             {"a", roleRef, serviceAccount("b", "sa"), true},
		"account in a cluster binding":        {"", clusterRoleRef, serviceAccount("b", "sa"), true},
		"cluster role in a namespace":         {"a", clusterRoleRef, serviceAccount("b", "sa"), true},
		"another namespace's binding":         {"b", clusterRoleRef, serviceAccount("b", "sa"), false},
		"binding in the account's, defaulted": {"b", clusterRoleRef, serviceAccount("", "sa"), false},
		"account in the binding's namespace":  {"a", roleRef, serviceAccount("", "sa"), false},
		"cluster binding without a namespace": {"", clusterRoleRef, serviceAccount("", "sa"), false},
		"another account":                     {"a", roleRef, serviceAccount("b", "other"), false},
		"another namespace's account":         {"a", roleRef, serviceAccount("c", "sa"), false},
		"user":                                {"a", roleRef, subject("User", "system:serviceaccount:b:sa"), true},
		"a short user name":                   {"a", roleRef, subject("User", "sa"), false},
		"a group as user":                     {"a", roleRef, subject("User", "system:serviceaccounts"), false},
		"all accounts":                        {"a", roleRef, subject("Group", "system:serviceaccounts"), true},
		"all accounts of the namespace":       {"a", roleRef, subject("Group", "system:serviceaccounts:b"), true},
		"all accounts of another namespace":   {"a", roleRef, subject("Group", "system:serviceaccounts:a"), false},
		"everybody known":                     {"", clusterRoleRef, subject("Group", "system:authenticated"), true},
		"everybody unknown":                   {"", clusterRoleRef, subject("Group", "system:unauthenticated"), false},
		"the user as a group":                 {"a", roleRef, subject("Group", "system:serviceaccount:b:sa"), false},
		"an unknown kind":                     {"a", roleRef, subject("Robot", "system:serviceaccount:b:sa"), false},
		"a role in a cluster binding":         {"", roleRef, serviceAccount("b", "sa"), false},
		"an unknown kind of role":             {"a", rbacv1.RoleRef{Kind: "Rule", Name: "r"}, serviceAccount("b", "sa"), false},
		"a missing role":                      {"a", rbacv1.RoleRef{Kind: "Role", Name: "q"}, serviceAccount("b", "sa"), false},
	} {
		p := newPolicy()
		p.setBinding(named(c.namespace, "b"), decodedBinding(t, c.namespace, c.ref, c.subject))
		if p.allows(identity(Account{"b", "sa"}), "get", ref) {
			t.Errorf("%s: allowed before there is a role", name)
		}
		rules := []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}}
		p.setRole(named("", "r"), rules)
		p.setRole(named("a", "r"), rules)
		p.setRole(named("b", "r"), rules)
		if got := p.allows(identity(Account{"b", "sa"}), "get", ref); got != c.allowed {
			t.Errorf("%s: allowed %t", name, got)
		}
		// A cluster-scoped object is for cluster bindings only.
		if got := p.allows(identity(Account{"b", "sa"}), "get", object.Ref{GroupVersionResource: ref.GroupVersionResource, Name: "x"}); got != (c.allowed && c.namespace == "") {
			t.Errorf("%s: allowed %t in the cluster", name, got)
		}
	}
}

func TestWhomAChangeConcerns(t *testing.T) {
	t.Parallel()
	userDependency := func(name string) dependency { return dependency{kind: user, name: named("", name)} }
	rules := []rbacv1.PolicyRule{{Verbs: []string{"get"}}}
	other := []rbacv1.PolicyRule{{Verbs: []string{"list"}}}
	p := newPolicy()
	expect := func(what string, got []dependency, want ...dependency) {
		t.Helper()
		found, wanted := sets.New(got...), sets.New(want...)
		if !found.Equal(wanted) {
			t.Errorf("%s: concerns %v, want %v", what, found, wanted)
		}
	}
	clusterRole, namespaceRole := dependency{role, named("", "r")}, dependency{role, named("a", "r")}
	expect("a role that nobody has", p.setRole(named("", "r"), rules), clusterRole)
	expect("the same", p.setRole(named("", "r"), slices.Clone(rules)))
	expect("a binding", p.setBinding(named("a", "x"), binding{role: named("", "r"), subjects: []dependency{userDependency("u"), userDependency("v")}}), userDependency("u"), userDependency("v"))
	expect("the same binding", p.setBinding(named("a", "x"), binding{role: named("", "r"), subjects: []dependency{userDependency("u"), userDependency("v")}}))
	expect("a cluster role by a role binding", p.setRole(named("", "r"), other), clusterRole, userDependency("u"), userDependency("v"))
	expect("a role of that name", p.setRole(named("a", "r"), other), namespaceRole)
	expect("other subjects", p.setBinding(named("a", "x"), binding{role: named("", "r"), subjects: []dependency{userDependency("v"), userDependency("w")}}), userDependency("u"), userDependency("v"), userDependency("w"))
	expect("a role that went", p.deleteRole(named("", "r")), clusterRole, userDependency("v"), userDependency("w"))
	expect("a role that is not there", p.deleteRole(named("", "r")))
	expect("a role that came back", p.setRole(named("", "r"), rules), clusterRole, userDependency("v"), userDependency("w"))
	expect("another role", p.setBinding(named("a", "x"), binding{role: named("a", "r"), subjects: []dependency{userDependency("w")}}), userDependency("v"), userDependency("w"))
	expect("the role that it was bound to", p.setRole(named("", "r"), other), clusterRole)
	expect("a binding that went", p.deleteBinding(named("a", "x")), userDependency("w"))
	expect("a binding that is not there", p.deleteBinding(named("a", "x")))
	p.deleteRole(named("", "r"))
	p.deleteRole(named("a", "r"))
	if len(p.roles)+len(p.bindings)+len(p.bound)+len(p.granted) != 0 {
		t.Errorf("left: %+v", p)
	}
}

// TestPolicyAsScanned compares the indexed policy, under changes, with one that looks at
// everything; and what is told to be affected with what changes.
func TestPolicyAsScanned(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	namespaces, names := []string{"", "a", "b"}, []string{"r", "s"}
	accounts := []Account{{"a", "x"}, {"a", "y"}, {"b", "x"}}
	refs := []object.Ref{}
	for _, namespace := range namespaces {
		for _, name := range []string{"m", "n"} {
			refs = append(refs, object.Ref{GroupVersionResource: schema.GroupVersionResource{Resource: "configmaps"}, Namespace: namespace, Name: name})
		}
	}
	p := newPolicy()
	roles, bindings := map[types.NamespacedName][]rbacv1.PolicyRule{}, map[types.NamespacedName]binding{}
	scan := func(account Account, ref object.Ref) bool {
		for key, b := range bindings {
			if key.Namespace != "" && key.Namespace != ref.Namespace {
				continue
			}
			for _, subject := range b.subjects {
				if slices.Contains(identity(account), subject) && slices.ContainsFunc(roles[b.role], func(r rbacv1.PolicyRule) bool { return ruleAllows(r, "get", ref) }) {
					return true
				}
			}
		}
		return false
	}
	type asked struct {
		account Account
		ref     object.Ref
	}
	before, allowed := map[asked]bool{}, 0
	for range 3000 {
		key := named(pick(namespaces...), pick(names...))
		var affected []dependency
		switch random.IntN(5) {
		case 0:
			delete(roles, key)
			affected = p.deleteRole(key)
		case 1:
			delete(bindings, key)
			affected = p.deleteBinding(key)
		case 2:
			rule := rbacv1.PolicyRule{Verbs: []string{pick("get", "*", "list")}, APIGroups: []string{""}, Resources: []string{pick("configmaps", "secrets")}}
			if random.IntN(2) == 0 {
				rule.ResourceNames = []string{pick("m", "n")}
			}
			roles[key] = []rbacv1.PolicyRule{rule}
			affected = p.setRole(key, roles[key])
		default:
			b := binding{role: named(pick("", key.Namespace), pick(names...))}
			for range random.IntN(3) {
				subjects := identity(accounts[random.IntN(len(accounts))])
				b.subjects = append(b.subjects, subjects[random.IntN(len(subjects))])
			}
			bindings[key] = b
			affected = p.setBinding(key, b)
		}
		for _, account := range accounts {
			told := slices.ContainsFunc(identity(account), func(m dependency) bool { return slices.Contains(affected, m) })
			for _, ref := range refs {
				got, want := p.allows(identity(account), "get", ref), scan(account, ref)
				if got != want {
					t.Fatalf("%v on %v: %t, scanned %t", account, ref, got, want)
				}
				if was := before[asked{account, ref}]; got != was && !told {
					t.Fatalf("%v on %v: %t after %t, and was not told", account, ref, got, was)
				}
				before[asked{account, ref}] = got
				if got {
					allowed++
				}
			}
		}
	}
	if allowed < 1000 {
		t.Errorf("only %d answers were yes: the test tells little", allowed)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"metadata":{"namespace":"a","name":"b"},"roleRef":{"kind":"Role","name":"r"},"subjects":[{"kind":"User","name":"u"},{"kind":"ServiceAccount","name":"s"}]}`))
	f.Add([]byte(`{"metadata":{"name":"b"},"rules":[{"verbs":["*"],"apiGroups":[""],"resources":["pods"],"resourceNames":["x"]}]}`))
	f.Add([]byte(`{"rules":null,"subjects":null,"roleRef":null}`))
	f.Add([]byte(`{"rules":[null],"subjects":[null],"roleRef":[]}`))
	f.Add([]byte(`{"metadata":null,"rules":{"verbs":1},"subjects":"x","roleRef":{"kind":7}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var fields map[string]any
		if json.Unmarshal(text, &fields) != nil {
			return
		}
		obj := &unstructured.Unstructured{Object: fields}
		rules, err := decodeRole(obj)
		if err != nil && rules != nil {
			t.Errorf("rules %v and %v", rules, err)
		}
		b, err := decodeBinding(obj)
		if err != nil && len(b.subjects) > 0 {
			t.Errorf("subjects %v and %v", b.subjects, err)
		}
		for _, subject := range b.subjects {
			if subject.kind == role || subject.name.Namespace != "" {
				t.Errorf("subject %v", subject)
			}
		}
		p := newPolicy()
		name := named(obj.GetNamespace(), obj.GetName())
		p.setRole(name, rules)
		p.setBinding(name, b)
		p.deleteBinding(name)
		p.deleteRole(name)
		if len(p.roles)+len(p.bindings)+len(p.bound)+len(p.granted) != 0 {
			t.Errorf("left: %+v", p)
		}
	})
}
