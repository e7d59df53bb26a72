package executor_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/agent/internal/executor"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/test/kit"
)

// TestTheRightsOfTheAgent runs the executor as a service account, first with nothing but reviews,
// then with what the documentation says it needs.
func TestTheRightsOfTheAgent(t *testing.T) {
	modes(t, func(t *testing.T, inMemory bool) {
		w := newWorld(t, inMemory)
		w.allow("all", rule("", []string{"configmaps"}, applying...), rule(rbacv1.GroupName, []string{"roles"}, applying...))
		w.becomes(w.configMap("test"), "") // the authorizer has it

		agent := w.asAgent(inMemory)
		_, err := w.checks.Check(w.Context(), w.account, w.configMap("test"))
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "subjectaccessreviews") || !strings.Contains(err.Error(), w.account.String()) {
			t.Errorf("without reviews: %v", err)
		}

		w.bindCluster("reviews", w.clusterRole("reviews", rule("authorization.k8s.io", []string{"subjectaccessreviews"}, "create")), agent)
		w.eventually(func() bool {
			recheck, err := w.checks.Check(w.Context(), w.account, w.configMap("test"))
			return err == nil && recheck > 4*time.Minute
		}, "no answer without watches")
		secret := w.configMap("other")
		secret.Ref.Resource = "secrets"
		if recheck, err := w.checks.Check(w.Context(), w.account, secret); err == nil || recheck != time.Minute {
			t.Errorf("without watches: %v, again in %v", err, recheck)
		}
		own := "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {namespace: " + w.namespace + ", name: r}, rules: [{apiGroups: [''], resources: [configmaps], verbs: [get]}]}"
		foreign := "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {namespace: " + w.namespace + ", name: r}, rules: [{apiGroups: [''], resources: [secrets], verbs: [get]}]}"
		_, err = w.checks.Check(w.Context(), w.account, w.manifest("%s", own))
		err = w.checks.Refused(w.account, w.manifest("%s", own).Ref, err)
		var denied *executor.DeniedError
		if errors.As(err, &denied) || !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "give the agent the verb impersonate on serviceaccounts") {
			t.Errorf("without impersonation: %v", err)
		}

		w.bindCluster("rest", w.clusterRole("rest", rule("", []string{"serviceaccounts"}, "impersonate"),
			rule(rbacv1.GroupName, []string{"roles", "rolebindings", "clusterroles", "clusterrolebindings"}, "list", "watch")), agent)
		w.eventually(func() bool {
			_, err := w.checks.Check(w.Context(), w.account, w.manifest("%s", own))
			return err == nil
		}, "a role of what the account has is refused")
		w.becomes(w.manifest("%s", foreign), "not allowed to apply the resource rbac.authorization.k8s.io roles, "+w.namespace+" r, error: permission escalation, will try again in 1m0s")
		if inMemory {
			w.eventually(func() bool {
				before := w.requests.Counts()[reviews]
				recheck, err := w.checks.Check(w.Context(), w.account, w.configMap("test"))
				return err == nil && recheck == 0 && w.requests.Counts()[reviews] == before
			}, "nothing is answered from memory")
		}
	})
}

// TestConstrainedImpersonation has the agent impersonate service accounts for RBAC objects only, as Kubernetes 1.36 can tell:
// docs/executor.md.
func TestConstrainedImpersonation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	w.allow("all", rule("", []string{"configmaps"}, "get"), rule(rbacv1.GroupName, []string{"roles"}, applying...))
	agent := w.asAgent(false)
	kinds := []string{"roles", "rolebindings", "clusterroles", "clusterrolebindings"}
	on := func(name string, verbs ...string) {
		t.Helper()
		for i := range verbs {
			verbs[i] = "impersonate-on:serviceaccount:" + verbs[i]
		}
		w.bindCluster(name, w.clusterRole(name, rule(rbacv1.GroupName, kinds, verbs...)), agent)
	}
	w.bindCluster("agent", w.clusterRole("agent", rule("authorization.k8s.io", []string{"subjectaccessreviews"}, "create"),
		rule("authentication.k8s.io", []string{"serviceaccounts"}, "impersonate:serviceaccount"),
		rule(rbacv1.GroupName, kinds, "list", "watch")), agent)
	on("try", "create")
	const format = "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {namespace: %s, name: r}, rules: [{apiGroups: [''], resources: [%s], verbs: [get]}]}"
	allowed, foreign := w.manifest(format, w.namespace, "configmaps"), w.manifest(format, w.namespace, "secrets")
	w.eventually(func() bool {
		_, err := w.checks.Check(w.Context(), w.account, allowed)
		return err == nil
	}, "a role of what the account has is refused")
	w.becomes(foreign, "not allowed to apply the resource rbac.authorization.k8s.io roles, "+w.namespace+" r, error: permission escalation, will try again in 1m0s")

	clients, err := w.checks.Clients(w.Context(), w.account, allowed)
	kit.NoError(t, err)
	roles := dynamic.New(clients.Client).Resource(allowed.Ref.GroupVersionResource).Namespace(w.namespace)
	w.must(roles.Create(w.Context(), allowed.Desired, metav1.CreateOptions{}))
	write := func(m *strategy.Manifest) error {
		_, err := roles.Update(w.Context(), m.Desired, metav1.UpdateOptions{})
		return w.checks.Refused(w.account, m.Ref, err)
	}
	if err := write(allowed); err == nil || !strings.HasSuffix(err.Error(), "give the agent the verb impersonate on serviceaccounts") {
		t.Errorf("with the right to create only: %v", err)
	}
	on("write", "get", "update", "patch", "delete")
	w.eventually(func() bool { return write(allowed) == nil }, "the account may not update")
	if _, err := roles.Get(w.Context(), "r", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	var denied *executor.DeniedError
	if err := write(foreign); !errors.As(err, &denied) || !denied.Escalation {
		t.Errorf("what the account does not have: %v", err)
	}
}

// asAgent makes the executor go on as a service account without rights.
func (w *world) asAgent(inMemory bool) rbacv1.Subject {
	w.Helper()
	w.must(w.cluster.CoreV1().ServiceAccounts(w.namespace).Create(w.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "agent"}}, metav1.CreateOptions{}))
	config := rest.AnonymousClientConfig(plane.REST())
	config.BearerToken = w.token("agent")
	w.start(config, inMemory)
	w.checks.Follow("work", nil, &w.account)
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: w.namespace, Name: "agent"}
}

// token gives a token of a service account.
func (w *world) token(name string) string {
	w.Helper()
	request, err := w.cluster.CoreV1().ServiceAccounts(w.namespace).CreateToken(w.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return request.Status.Token
}
