package executor_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/agent/internal/executor"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
)

func TestEveryVerbIsNeeded(t *testing.T) {
	modes(t, func(t *testing.T, inMemory bool) {
		w := newWorld(t, inMemory)
		m := w.configMap("test")
		denied := "not allowed to apply the resource  configmaps, " + w.namespace + " test, will try again in 1m0s"
		w.becomes(m, denied)
		w.allow("configmaps")
		for i, verb := range applying {
			// Once more what was granted, and the next one is missing.
			var refused *executor.DeniedError
			w.eventually(func() bool {
				_, err := w.checks.Check(w.Context(), w.account, m)
				return errors.As(err, &refused) && refused.Verb == verb
			}, "%s is not denied", verb)
			if refused.Error() != denied || refused.Escalation || refused.Account != w.account || refused.Ref != m.Ref {
				t.Errorf("%s: %+v", verb, refused)
			}
			w.setRole("configmaps", rule("", []string{"configmaps"}, applying[:i+1]...))
		}
		w.becomes(m, "")

		// What does not belong to the work need not be deletable.
		w.setRole("configmaps", rule("", []string{"configmaps"}, applying[:4]...))
		w.becomes(m, denied)
		orphaned := *m
		orphaned.Owned = false
		w.becomes(&orphaned, "")
	})
}

func TestReadOnlyAndClusterScopedAreChecked(t *testing.T) {
	modes(t, func(t *testing.T, inMemory bool) {
		w := newWorld(t, inMemory)
		readOnly := manifest(t, "{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: "+w.namespace+", name: web}}", func(spec *workv1.ManifestWorkSpec) {
			spec.ManifestConfigs = []workv1.ManifestConfigOption{{
				ResourceIdentifier: workv1.ResourceIdentifier{Group: "apps", Resource: "deployments", Namespace: w.namespace, Name: "web"},
				UpdateStrategy:     &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeReadOnly},
			}}
		})
		if readOnly.Strategy != workv1.UpdateStrategyTypeReadOnly {
			t.Fatalf("strategy %s", readOnly.Strategy)
		}
		w.becomes(readOnly, "not allowed to apply the resource apps deployments, "+w.namespace+" web, will try again in 1m0s")
		namespace := w.manifest("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", w.namespace)
		w.becomes(namespace, "not allowed to apply the resource  namespaces,  "+w.namespace+", will try again in 1m0s")

		// A role in the namespace is not enough for the namespace itself; one of the cluster, for
		// that name only, is.
		w.allow("namespaces", rule("", []string{"namespaces"}, "*"), rule("apps", []string{"deployments"}, "*"))
		w.becomes(readOnly, "")
		w.becomes(namespace, "not allowed to apply the resource  namespaces,  "+w.namespace+", will try again in 1m0s")
		narrow := rule("", []string{"namespaces"}, applying...)
		narrow.ResourceNames = []string{w.namespace}
		w.bindCluster("namespace", w.clusterRole("namespace", narrow), w.subject())
		w.becomes(namespace, "")
	})
}

// TestRightsThatChange goes through the ways in which an account gets and loses rights.
func TestRightsThatChange(t *testing.T) {
	modes(t, func(t *testing.T, inMemory bool) {
		w := newWorld(t, inMemory)
		rbac, m := w.cluster.RbacV1(), w.configMap("test")
		denied := "not allowed to apply the resource  configmaps, " + w.namespace + " test, will try again in 1m0s"
		everything, nothing := rule("", []string{"configmaps"}, "*"), rule("", []string{"secrets"}, "*")
		deletion := metav1.DeleteOptions{}
		w.becomes(m, denied)
		check := func(err error) {
			t.Helper()
			kit.NoError(t, err)
		}

		// A binding before its role; then without it.
		w.bind("b", "Role", "r")
		w.role("r", everything)
		w.becomes(m, "")
		check(rbac.Roles(w.namespace).Delete(w.Context(), "r", deletion))
		w.becomes(m, denied)
		w.role("r", everything)
		w.becomes(m, "")
		check(rbac.RoleBindings(w.namespace).Delete(w.Context(), "b", deletion))
		w.becomes(m, denied)

		// A ClusterRole by a RoleBinding.
		clusterRole := w.clusterRole("r", nothing)
		w.bind("b", "ClusterRole", clusterRole)
		update := func(rule rbacv1.PolicyRule) {
			t.Helper()
			w.must(rbac.ClusterRoles().Update(w.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: clusterRole}, Rules: []rbacv1.PolicyRule{rule}}, metav1.UpdateOptions{}))
		}
		update(everything)
		w.becomes(m, "")
		update(nothing)
		w.becomes(m, denied)
		update(everything)
		w.becomes(m, "")

		// Another subject instead, and the account's group.
		binding, err := rbac.RoleBindings(w.namespace).Get(w.Context(), "b", metav1.GetOptions{})
		check(err)
		binding.Subjects[0].Name = "executor2"
		binding, err = rbac.RoleBindings(w.namespace).Update(w.Context(), binding, metav1.UpdateOptions{})
		check(err)
		w.becomes(m, denied)
		binding.Subjects = []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:serviceaccounts:" + w.namespace}}
		w.must(rbac.RoleBindings(w.namespace).Update(w.Context(), binding, metav1.UpdateOptions{}))
		w.becomes(m, "")
		check(rbac.ClusterRoles().Delete(w.Context(), clusterRole, deletion))
		w.becomes(m, denied)

		// The cluster's binding.
		clusterBinding := w.bindCluster("b", w.clusterRole("other", everything), w.subject())
		w.becomes(m, "")
		check(rbac.ClusterRoleBindings().Delete(w.Context(), clusterBinding, deletion))
		w.becomes(m, denied)
	})
}

func TestEscalationIsRefused(t *testing.T) {
	modes(t, func(t *testing.T, inMemory bool) {
		w := newWorld(t, inMemory)
		role := w.manifest("{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {namespace: %s, name: given}, "+
			"rules: [{apiGroups: [''], resources: [configmaps], verbs: [get]}]}", w.namespace)
		text := "not allowed to apply the resource rbac.authorization.k8s.io roles, " + w.namespace + " given"
		w.becomes(role, text+", will try again in 1m0s")
		w.allow("rbac", rule(rbacv1.GroupName, []string{"roles"}, applying...))
		w.becomes(role, text+", error: permission escalation, will try again in 1m0s")
		_, err := w.checks.Check(w.Context(), w.account, role)
		var denied *executor.DeniedError
		if !errors.As(err, &denied) || !denied.Escalation || !strings.Contains(denied.Reason, "currently held") {
			t.Errorf("the refusal is %+v", denied)
		}
		w.becomes(w.manifest("{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {namespace: %s, name: given, resourceVersion: '1'}, "+
			"rules: [{apiGroups: [rbac.authorization.k8s.io], resources: [roles], verbs: [get]}]}", w.namespace), "")

		// Who has a right may give it, also who has it by a group.
		w.must(w.cluster.RbacV1().RoleBindings(w.namespace).Create(w.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "readers"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "readers"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:serviceaccounts:" + w.namespace}},
		}, metav1.CreateOptions{}))
		w.role("readers", rule("", []string{"configmaps"}, "get"))
		w.becomes(role, "")
		kit.NoError(t, w.cluster.RbacV1().Roles(w.namespace).Delete(w.Context(), "readers", metav1.DeleteOptions{}))
		w.becomes(role, text+", error: permission escalation, will try again in 1m0s")

		// So may who has the verb escalate; whether the role exists makes no difference.
		w.allow("escalate", rule(rbacv1.GroupName, []string{"roles"}, "escalate"))
		w.becomes(role, "")
		w.role("given")
		w.fresh().becomes(role, "")
	})
}

func TestBindIsRespected(t *testing.T) {
	modes(t, func(t *testing.T, inMemory bool) {
		w := newWorld(t, inMemory)
		clusterRole := w.clusterRole("powers", rule("", []string{"configmaps"}, "*"))
		const format = "{apiVersion: rbac.authorization.k8s.io/v1, kind: %s, metadata: {namespace: %s, name: %s}, " +
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %s}}"
		binding := w.manifest(format, "RoleBinding", w.namespace, "given", clusterRole)
		clusterBinding := w.manifest(format, "ClusterRoleBinding", `""`, w.namespace+"-given", clusterRole)
		w.bindCluster("rbac", w.clusterRole("rbac", rule(rbacv1.GroupName, []string{"rolebindings", "clusterrolebindings"}, applying...)), w.subject())
		denied := "not allowed to apply the resource rbac.authorization.k8s.io rolebindings, " + w.namespace + " given, error: permission escalation, will try again in 1m0s"
		deniedCluster := "not allowed to apply the resource rbac.authorization.k8s.io clusterrolebindings,  " + w.namespace + "-given, error: permission escalation, will try again in 1m0s"
		w.becomes(binding, denied)
		w.becomes(clusterBinding, deniedCluster)

		// For that role, in that namespace.
		narrow := rule(rbacv1.GroupName, []string{"clusterroles"}, "bind")
		narrow.ResourceNames = []string{clusterRole}
		w.allow("bind", narrow)
		w.becomes(binding, "")
		w.becomes(clusterBinding, deniedCluster)
		w.bindCluster("bind", w.clusterRole("bind", narrow), w.subject())
		w.becomes(clusterBinding, "")
	})
}

// TestARoleThatIsAboutToBeBound changes a role that nobody has: whether it may be bound depends on
// what it allows.
func TestARoleThatIsAboutToBeBound(t *testing.T) {
	modes(t, func(t *testing.T, inMemory bool) {
		w := newWorld(t, inMemory)
		w.allow("rbac", rule(rbacv1.GroupName, []string{"rolebindings"}, applying...))
		binding := w.manifest("{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {namespace: %s, name: given}, "+
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: later}}", w.namespace)
		w.role("later")
		w.becomes(binding, "")
		w.setRole("later", rule("", []string{"secrets"}, "*"))
		w.becomes(binding, "not allowed to apply the resource rbac.authorization.k8s.io rolebindings, "+w.namespace+
			" given, error: permission escalation, will try again in 1m0s")
	})
}

// TestOtherErrorsStayAsTheyAre has manifests that the API server refuses for what they are.
func TestOtherErrorsStayAsTheyAre(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	w.bindCluster("rbac", w.clusterRole("rbac", rule(rbacv1.GroupName, []string{"roles", "rolebindings"}, "*")), w.subject())
	for text, isExpected := range map[string]func(error) bool{
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {namespace: " + w.namespace + "-missing, name: r}}":                                                                     apierrors.IsNotFound,
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {namespace: " + w.namespace + ", name: r}, rules: [{verbs: [get]}]}":                                                    apierrors.IsInvalid,
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {namespace: " + w.namespace + ", name: r}, rules: 7}":                                                                   apierrors.IsBadRequest,
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {namespace: " + w.namespace + ", name: r}, roleRef: 7}":                                                          apierrors.IsBadRequest,
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {namespace: " + w.namespace + ", name: r}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Rule, name: x}}": isUnsupportedKind,
	} {
		m := w.manifest("%s", text)
		w.eventually(func() bool {
			recheck, err := w.checks.Check(w.Context(), w.account, m)
			var denied *executor.DeniedError
			return recheck == 0 && err != nil && !errors.As(err, &denied) && isExpected(err)
		}, "%s: the error is another", text)
	}
}

func isUnsupportedKind(err error) bool {
	return strings.Contains(err.Error(), `unsupported role reference kind: "Rule"`)
}

// TestAnswersCostNothing counts requests for what was asked before.
func TestAnswersCostNothing(t *testing.T) {
	modes(t, func(t *testing.T, inMemory bool) {
		w := newWorld(t, inMemory)
		w.allow("all", rule("", []string{"configmaps"}, applying...), rule(rbacv1.GroupName, []string{"roles"}, applying...))
		role := w.manifest("{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {namespace: %s, name: r}}", w.namespace)
		granted, refused := w.configMap("test"), w.configMap("test")
		refused.Ref.Resource = "secrets"
		w.becomes(granted, "")
		w.eventually(func() bool {
			count := func() int { return w.requests.Counts()[reviews] + w.requests.Counts()["create roles"] }
			before := count()
			for range 50 {
				if w.check(granted) != "" || w.check(role) != "" || w.check(refused) == "" {
					t.Fatal("the answer has changed")
				}
			}
			return count() == before
		}, "answers are asked for again")
		if inMemory && (w.requests.Counts()["watch roles"] == 0 || w.requests.Counts()["create roles"] == 0) {
			t.Error("no watches, or no creation tried")
		}
	})
}

// subject is the account's.
func (w *world) subject() rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: w.account.Namespace, Name: w.account.Name}
}

// fresh gives the world an executor that knows nothing yet.
func (w *world) fresh() *world {
	w.Helper()
	other := *w
	other.changed = make(chan string, 1000)
	other.start(plane.REST(), false)
	other.checks.Follow("work", nil, &w.account)
	return &other
}

// eventually waits for done.
func (w *world) eventually(done func() bool, format string, args ...any) {
	w.Helper()
	w.settles(func() error {
		if !done() {
			return fmt.Errorf(format, args...)
		}
		return nil
	})
}

// settles waits for check to find nothing wrong.
func (w *world) settles(check func() error) {
	w.Helper()
	kit.Eventually(w, "the end of changes", check)
}
