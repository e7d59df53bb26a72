package executor_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/internal/executor"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/test/kit"
)

// TestBothModesAnswerAlike asks the API server and the evaluator of RBAC the same of generated
// RBAC, which is changed again and again. Its resources are invented, so that the rights that it
// hands out are no other test's.
func TestBothModesAnswerAlike(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	g := &generator{
		world: w, Rand: rand.New(rand.NewPCG(11, 7)),
		namespaces: []string{w.namespace, plane.Namespace(t, "executor-other")},
	}
	g.accounts = []executor.Account{
		w.account, {Namespace: w.namespace, Name: "executor2"}, {Namespace: g.namespaces[1], Name: w.account.Name},
	}
	for i := range g.accounts {
		w.checks.Follow(fmt.Sprint("work", i), nil, &g.accounts[i])
	}
	g.create()
	// Nobody follows this one: it always asks.
	asking := newExecutor(t, executor.Config[string]{Client: kit.RESTClient(t, plane.REST()), Changed: func(string) {}})
	allowed, total := 0, 0
	for round := range 6 {
		if round > 0 {
			g.change()
		}
		for range 120 {
			account, m := g.question()
			var denied string
			w.settles(func() error {
				inMemory, again, err := verdictOf(w, w.checks, account, m)
				if err != nil {
					return err
				}
				reviewed, _, err := verdictOf(w, asking, account, m)
				if err != nil {
					return err
				}
				if inMemory != reviewed || inMemory == "" && again != 0 {
					return fmt.Errorf("round %d: %v on %v (deletable: %t): in memory %q (again in %v), by review %q",
						round, account, m.Ref, m.Owned, inMemory, again, reviewed)
				}
				denied = inMemory
				return nil
			})
			total++
			if denied == "" {
				allowed++
			}
		}
		before := w.requests.Counts()[reviews]
		for range 200 {
			account, m := g.question()
			if _, _, err := verdictOf(w, w.checks, account, m); err != nil {
				t.Fatal(err)
			}
		}
		if asked := w.requests.Counts()[reviews] - before; asked != 0 {
			t.Errorf("round %d: %d reviews", round, asked)
		}
	}
	t.Logf("%d of %d allowed", allowed, total)
	if allowed < total/10 || allowed > total*9/10 {
		t.Errorf("%d of %d were allowed: the test tells little", allowed, total)
	}
}

// verdictOf gives the verb that is denied, "" if all are allowed.
func verdictOf(w *world, checks *executor.Executor[string], account executor.Account, m *strategy.Manifest) (string, time.Duration, error) {
	recheck, err := checks.Check(w.Context(), account, m)
	var denied *executor.DeniedError
	if errors.As(err, &denied) {
		return denied.Verb, recheck, nil
	}
	return "", recheck, err
}

// generator makes RBAC and questions about it.
type generator struct {
	*world
	*rand.Rand
	namespaces []string
	accounts   []executor.Account

	roles, clusterRoles []string
	bindings            []string // of roles, in each namespace
}

func (g *generator) pick(from ...string) string { return from[g.IntN(len(from))] }

func (g *generator) some(from ...string) []string {
	picked := []string{g.pick(from...)}
	for _, one := range from {
		if g.IntN(3) == 0 {
			picked = append(picked, one)
		}
	}
	return picked
}

func (g *generator) rules() []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for range 1 + g.IntN(3) {
		r := rbacv1.PolicyRule{
			APIGroups: g.some("one.example.com", "two.example.com"),
			Resources: g.some("widgets", "gadgets", "widgets/status", "*/status", "*", "Widgets", "*/*"),
			Verbs:     []string{"*"},
		}
		if g.IntN(2) == 0 {
			r.Verbs = append([]string{"get", "patch", "escalate", "list"}, g.some("create", "update", "delete")...)
		}
		if g.IntN(3) == 0 {
			// Never all resources of all groups.
			r.APIGroups, r.Resources = []string{"*"}, g.some("widgets", "gadgets", "gadgets/scale")
		}
		if g.IntN(3) == 0 {
			r.ResourceNames = g.some("a", "b", "*")
		}
		rules = append(rules, r)
	}
	return rules
}

func (g *generator) subjects(namespaced bool) []rbacv1.Subject {
	var subjects []rbacv1.Subject
	for range 1 + g.IntN(2) {
		account := g.accounts[g.IntN(len(g.accounts))]
		named := func(kind, name string) rbacv1.Subject {
			return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
		}
		subject := rbacv1.Subject{Kind: "ServiceAccount", Namespace: account.Namespace, Name: account.Name}
		switch g.IntN(12) {
		case 0:
			subject = named("User", account.String())
		case 1:
			subject = named("User", account.Name)
		case 2:
			subject = named("Group", "system:serviceaccounts:"+account.Namespace)
		case 3:
			subject = named("Group", g.pick("system:serviceaccounts", "system:authenticated", "system:unauthenticated"))
		case 4:
			subject = named("Group", account.String())
		case 5:
			subject.Name = "nobody"
		case 6, 7:
			if namespaced {
				subject.Namespace = "" // the binding's
			}
		}
		subjects = append(subjects, subject)
	}
	return subjects
}

// create makes all there is, and what cleans it up.
func (g *generator) create() {
	g.Helper()
	for i := range 4 {
		g.clusterRoles = append(g.clusterRoles, g.clusterRole(fmt.Sprint("r", i), g.rules()...))
		g.roles = append(g.roles, fmt.Sprint("r", i))
		g.bindings = append(g.bindings, fmt.Sprint("b", i))
	}
	for i := range 2 {
		g.bindCluster(fmt.Sprint("b", i), g.pick(append(g.clusterRoles, "no-such-role")...), g.subjects(false)...)
	}
	for _, namespace := range g.namespaces {
		for _, name := range g.roles {
			g.createRole(namespace, name)
		}
		for _, name := range g.bindings {
			g.createBinding(namespace, name)
		}
	}
}

func (g *generator) createRole(namespace, name string) {
	g.Helper()
	g.must(g.cluster.RbacV1().Roles(namespace).Create(g.Context(),
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: g.rules()}, metav1.CreateOptions{}))
}

func (g *generator) createBinding(namespace, name string) {
	g.Helper()
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: g.pick(append(g.roles, "no-such-role")...)}
	if g.IntN(2) == 0 {
		ref.Kind, ref.Name = "ClusterRole", g.pick(append(g.clusterRoles, "no-such-role")...)
	}
	g.must(g.cluster.RbacV1().RoleBindings(namespace).Create(g.Context(),
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: ref, Subjects: g.subjects(true)}, metav1.CreateOptions{}))
}

// change changes one of each kind.
func (g *generator) change() {
	g.Helper()
	rbac, namespace := g.cluster.RbacV1(), g.pick(g.namespaces...)
	name := g.pick(g.roles...)
	if err := rbac.Roles(namespace).Delete(g.Context(), name, metav1.DeleteOptions{}); err != nil {
		g.Fatal(err)
	}
	g.createRole(namespace, name)
	name = g.pick(g.bindings...)
	if err := rbac.RoleBindings(namespace).Delete(g.Context(), name, metav1.DeleteOptions{}); err != nil {
		g.Fatal(err)
	}
	g.createBinding(namespace, name)
	g.must(rbac.ClusterRoles().Update(g.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: g.pick(g.clusterRoles...)}, Rules: g.rules()}, metav1.UpdateOptions{}))
	binding, err := rbac.ClusterRoleBindings().Get(g.Context(), g.namespace+"-"+g.pick("b0", "b1"), metav1.GetOptions{})
	if err != nil {
		g.Fatal(err)
	}
	binding.Subjects = g.subjects(false)
	g.must(rbac.ClusterRoleBindings().Update(g.Context(), binding, metav1.UpdateOptions{}))
}

// question is about any account and object.
func (g *generator) question() (executor.Account, *strategy.Manifest) {
	return g.accounts[g.IntN(len(g.accounts))], &strategy.Manifest{
		Ref: object.Ref{
			GroupVersionResource: schema.GroupVersionResource{
				Group: g.pick("one.example.com", "two.example.com", "three.example.com"), Version: "v1", Resource: g.pick("widgets", "gadgets"),
			},
			Namespace: g.pick(append(g.namespaces, "")...), Name: g.pick("a", "b", "c"),
		},
		Owned: g.IntN(2) == 0,
	}
}
