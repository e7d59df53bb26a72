package agent_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/pkg/agent"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// spyRules make a status show the password of Secrets, in every way there is.
const spyRules = `
- resourceIdentifier: {group: "", resource: secrets, namespace: NAMESPACE, name: watched}
  updateStrategy: {type: ReadOnly}
  feedbackScrapeType: Watch
  feedbackRules: [{type: JSONPaths, jsonPaths: [{name: password, path: .data.password-key}]}]
- resourceIdentifier: {group: "", resource: secrets, namespace: NAMESPACE, name: labelled}
  updateStrategy: {type: ReadOnly}
  feedbackRules: [{type: JSONPaths, jsonPaths: [{name: password, path: .data.password-key}]}]
  feedbackScrapeType: Watch
- resourceIdentifier: {group: "", resource: secrets, namespace: NAMESPACE, name: "ignor*"}
  updateStrategy: {type: ServerSideApply, serverSideApply: {ignoreFields: [{jqPathExpressions: [".data[\"password-key\"]"]}]}}
- resourceIdentifier: {group: "", resource: secrets, namespace: NAMESPACE, name: "*"}
  feedbackRules: [{type: JSONPaths, jsonPaths: [{name: password, path: .data.password-key}]}]
  conditionRules:
  - {type: CEL, condition: Seen, celExpressions: ["object.data['password-key'] != ''"], messageExpression: "object.data['password-key']"}
`

// options sets the manifestConfigs of a spec.
func (w *fixture) options(spec *workv1.ManifestWorkSpec, text string) {
	w.Helper()
	kit.NoError(w, yaml.UnmarshalStrict([]byte(strings.ReplaceAll(text, "NAMESPACE", w.namespace)), &spec.ManifestConfigs))
}

// spec returns the spec of a work with executor1 and options.
func (w *fixture) executedSpec(raw *rawSource, generation wire.Generation, options string, manifests ...string) *wire.Spec {
	w.Helper()
	work := w.executed("spy", manifests...)
	w.options(&work.Spec, options)
	spec := raw.spec("spy", "uid-spy", generation)
	spec.Bundle = wire.NewBundle(&work.Spec)
	return spec
}

// shows waits until the last status of the spy is of generation, and its manifest i has the
// conditions given as type=status, and the feedback values.
func (r *rawSource) shows(generation wire.Generation, i int, values string, conditions ...string) {
	r.Helper()
	kit.Eventually(r, fmt.Sprintf("manifest %d shows %v and %q", i, conditions, values), func() error {
		if s := r.last("uid-spy"); s.Generation != generation || !shown(s, i, values, conditions...) {
			return fmt.Errorf("generation %d: %+v", s.Generation, s.Status.ResourceStatus.Manifests)
		}
		return nil
	})
}

func shown(s *wire.Status, i int, values string, conditions ...string) bool {
	if len(s.Status.ResourceStatus.Manifests) <= i {
		return false
	}
	entry := s.Status.ResourceStatus.Manifests[i]
	var got []string
	for _, value := range entry.StatusFeedbacks.Values {
		if value.Value.String != nil {
			got = append(got, *value.Value.String)
		}
	}
	return strings.Join(got, " ") == values && !slices.ContainsFunc(conditions, func(want string) bool {
		kind, status, _ := strings.Cut(want, "=")
		c := meta.FindStatusCondition(entry.Conditions, kind)
		return c == nil || string(c.Status) != status
	})
}

// TestDeniedExecutorSeesNothing has a work whose executor may do nothing name Secrets: one that the
// agent does not watch, one that it watches for another work, one that does not exist.
func TestDeniedExecutorSeesNothing(t *testing.T) {
	t.Parallel()
	for name, caches := range map[string]bool{"by reviews": false, "from memory": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			const password = "hunter2-of-the-test"
			encoded := base64.StdEncoding.EncodeToString([]byte(password))
			var hidden []string
			for _, name := range []string{"foreign", "ignored", "watched"} {
				secret, err := w.cluster.CoreV1().Secrets(w.namespace).Create(w.Context(), &corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"password-key": password},
				}, metav1.CreateOptions{})
				kit.NoError(t, err)
				hidden = append(hidden, string(secret.UID))
			}
			log := &kit.Log{}
			raw := w.rawSource("hub1", func(c *agent.Config) { c.Logger, c.ExecutorCaches = log.Logger(), caches })
			raw.send(raw.spec("owner", "uid-owner", 1,
				"{apiVersion: v1, kind: Secret, metadata: {name: labelled, namespace: NAMESPACE}, stringData: {password-key: "+password+"}}"), nil)
			raw.reported("uid-owner", 1, workv1.WorkAvailable)

			secret := func(name string) string {
				return "{apiVersion: v1, kind: Secret, metadata: {name: " + name + ", namespace: NAMESPACE}, data: {}}"
			}
			names := []string{"foreign", "labelled", "ignored", "watched", "absent"}
			var manifests []string
			for _, name := range names {
				manifests = append(manifests, secret(name))
			}
			raw.send(w.executedSpec(raw, 1, spyRules, manifests...), nil)
			withdrawn := func() {
				t.Helper()
				for i := range names {
					raw.shows(1, i, "", "Applied=False", "Available=False", "Seen=Unknown")
				}
			}
			withdrawn()
			w.applied("spy", "is there", func(*workv1.AppliedManifestWork) error { return nil })
			w.showsNothing(raw, log, append(hidden, encoded)...)

			// With get and nothing else, the objects are reported.
			w.bind("read", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}})
			for i := range names[:4] {
				raw.shows(1, i, encoded, "Applied=False", "Available=True", "Seen=True")
			}
			raw.shows(1, 4, "", "Applied=False", "Available=False")

			// Without it again, nothing is left of them.
			kit.NoError(t, w.cluster.RbacV1().RoleBindings(w.namespace).Delete(w.Context(), "read", metav1.DeleteOptions{}))
			withdrawn()
			if text := asJSON(w, raw.last("uid-spy")); strings.Contains(text, encoded) {
				t.Error(text)
			}
			raw.delete("uid-spy", 2)
			raw.reported("uid-spy", 2, workv1.WorkDeleted)
			if text := asJSON(w, raw.last("uid-spy")); strings.Contains(text, encoded) {
				t.Error(text)
			}
			for _, name := range names[:4] {
				if _, err := w.cluster.CoreV1().Secrets(w.namespace).Get(w.Context(), name, metav1.GetOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// last returns the last status of a work.
func (r *rawSource) last(uid string) *wire.Status {
	last := &wire.Status{}
	for _, message := range r.peer.Received() {
		if status, ok := message.(*wire.Status); ok && string(status.UID) == uid {
			last = status
		}
	}
	return last
}

// showsNothing checks that nothing of the objects is in what the agent has said: entries of the spy's
// statuses, the same whether the object exists, the log, the AppliedManifestWork and events.
func (w *fixture) showsNothing(raw *rawSource, log *kit.Log, hidden ...string) {
	w.Helper()
	places := map[string]string{"log": log.String()}
	for _, message := range raw.peer.Received() {
		status, ok := message.(*wire.Status)
		if !ok || status.UID != "uid-spy" {
			continue
		}
		places["statuses"] += asJSON(w, status)
		entries := map[string]bool{}
		for _, entry := range status.Status.ResourceStatus.Manifests {
			text := strings.ReplaceAll(asJSON(w, entry.Conditions), entry.ResourceMeta.Name, "NAME")
			entries[text] = true
		}
		if len(entries) > 1 {
			w.Errorf("the entries tell objects apart: %v", entries)
		}
	}
	amw := w.applied("spy", "is there", func(*workv1.AppliedManifestWork) error { return nil })
	places["AppliedManifestWork"] = asJSON(w, amw)
	if len(amw.Status.AppliedResources) > 0 {
		w.Errorf("the AppliedManifestWork names %v", amw.Status.AppliedResources)
	}
	events, err := w.cluster.CoreV1().Events("").List(w.Context(), metav1.ListOptions{})
	kit.NoError(w, err)
	places["events"] = asJSON(w, events)
	for place, text := range places {
		for _, secret := range append(hidden, "hunter2-of-the-test") {
			if strings.Contains(text, secret) {
				w.Errorf("%s: %q is in %s", place, secret, text)
			}
		}
	}
}

func asJSON(w *fixture, value any) string {
	w.Helper()
	text, err := json.Marshal(value)
	kit.NoError(w, err)
	return string(text)
}

// TestDeniedRoleIsReported has a Role that exists, and that the executor may write but not with the
// rules of the manifest.
func TestDeniedRoleIsReported(t *testing.T) {
	for name, kind := range map[string]string{"Update": "Update", "ReadOnly": "ReadOnly", "ServerSideApply": "ServerSideApply"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if _, err := w.cluster.RbacV1().Roles(w.namespace).Create(w.Context(), &rbacv1.Role{
				ObjectMeta: metav1.ObjectMeta{Name: "r"},
				Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}}},
			}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			w.bind("roles", rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"},
				Verbs: []string{"get", "create", "update", "patch", "delete"}})
			raw := w.rawSource("hub1")
			raw.send(w.executedSpec(raw, 1, `
- resourceIdentifier: {group: rbac.authorization.k8s.io, resource: roles, namespace: NAMESPACE, name: r}
  updateStrategy: {type: `+kind+`}
  feedbackRules: [{type: JSONPaths, jsonPaths: [{name: resource, path: ".rules[0].resources[0]"}]}]
`, roleText("r", "secrets")), nil)
			raw.shows(1, 0, "configmaps", "Applied=False", "Available=True")
			applied := meta.FindStatusCondition(raw.last("uid-spy").Status.ResourceStatus.Manifests[0].Conditions, "Applied")
			if want := "error: permission escalation, will try again in 1m0s"; !strings.HasSuffix(applied.Message, want) {
				t.Errorf("Applied says %q", applied.Message)
			}
		})
	}
}

func roleText(name, resource string) string {
	return "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: " + name + ", namespace: NAMESPACE}, " +
		"rules: [{apiGroups: [''], resources: [" + resource + "], verbs: [get]}]}"
}

// smuggled are manifests that are harmless as they are, and not without what is ignored.
var smuggled = map[string]struct{ manifest, pointer, jq string }{
	"roleRef": {manifest: "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: smuggled, namespace: NAMESPACE}, " +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: harmless}, subjects: [{kind: ServiceAccount, name: executor1, namespace: NAMESPACE}]}",
		pointer: "/roleRef"},
	"resourceNames": {manifest: "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: smuggled, namespace: NAMESPACE}, " +
		"rules: [{apiGroups: [''], resources: [secrets], verbs: [get], resourceNames: [a]}]}",
		jq: ".rules[].resourceNames"},
}

// smuggling makes a binding without subjects and a Role without rules, and returns the spec of a work
// that gives the executor what it does not have.
func (w *fixture) smuggling(raw *rawSource, name string) *wire.Spec {
	w.Helper()
	ctx, rbac := w.Context(), w.cluster.RbacV1()
	_, err := rbac.RoleBindings(w.namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "smuggled"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}, metav1.CreateOptions{})
	kit.NoError(w, err)
	for _, role := range []string{"harmless", "smuggled"} {
		_, err = rbac.Roles(w.namespace).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: role}}, metav1.CreateOptions{})
		kit.NoError(w, err)
	}
	w.bind("rbac", rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles", "rolebindings"},
		Verbs: []string{"get", "create", "update", "patch", "delete"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}, ResourceNames: []string{"a"}})
	ignored := `jsonPointers: ["` + smuggled[name].pointer + `"]`
	if jq := smuggled[name].jq; jq != "" {
		ignored = `jqPathExpressions: ["` + jq + `"]`
	}
	return w.executedSpec(raw, 1, `
- resourceIdentifier: {group: rbac.authorization.k8s.io, resource: roles, namespace: NAMESPACE, name: smuggled}
  updateStrategy: &s {type: ServerSideApply, serverSideApply: {force: true, ignoreFields: [{`+ignored+`}]}}
- resourceIdentifier: {group: rbac.authorization.k8s.io, resource: rolebindings, namespace: NAMESPACE, name: smuggled}
  updateStrategy: *s
`, smuggled[name].manifest)
}

// unchanged checks that the objects of smuggling are as they were.
func (w *fixture) unchanged() {
	w.Helper()
	binding, err := w.cluster.RbacV1().RoleBindings(w.namespace).Get(w.Context(), "smuggled", metav1.GetOptions{})
	if err != nil || len(binding.Subjects) > 0 {
		w.Errorf("the binding has subjects %v, %v", binding.Subjects, err)
	}
	role, err := w.cluster.RbacV1().Roles(w.namespace).Get(w.Context(), "smuggled", metav1.GetOptions{})
	if err != nil || len(role.Rules) > 0 {
		w.Errorf("the Role has rules %v, %v", role.Rules, err)
	}
}

// TestIgnoreFieldsSmuggleNothing: what is written is what the API server has checked, as the
// executor.
func TestIgnoreFieldsSmuggleNothing(t *testing.T) {
	for name := range smuggled {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			raw := w.rawSource("hub1")
			raw.send(w.smuggling(raw, name), nil)
			raw.says(0, workv1.ReasonAppliedManifestFailed, "error: permission escalation, will try again in 1m0s")
			raw.shows(1, 0, "", "Applied=False", "Available=True")
			w.unchanged()
		})
		t.Run(name+", by an agent that may not impersonate", func(t *testing.T) {
			w := newWorld(t)
			raw := w.rawSource("hub1", func(c *agent.Config) { c.Kube = w.requests.Wrap(w.agentAccount()) })
			raw.send(w.smuggling(raw, name), nil)
			raw.says(0, workv1.ReasonAppliedManifestFailed, "give the agent the verb impersonate on serviceaccounts")
			w.unchanged()
		})
	}
}

// TestUndeclaredRulesAreNotAdopted: an agent that writes only RBAC's kinds as the executor writes no rules of a ClusterRole that its
// manifest does not declare, and that the executor does not have.
func TestUndeclaredRulesAreNotAdopted(t *testing.T) {
	all, none := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}, []rbacv1.PolicyRule{}
	aggregation := &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"a": "b"}}}}
	for name, test := range map[string]struct {
		live    rbacv1.ClusterRole
		rules   string // of the manifest
		refused bool
	}{
		"undeclared":                   {rbacv1.ClusterRole{Rules: all}, "", true},
		"none of an aggregated role":   {rbacv1.ClusterRole{Rules: none, AggregationRule: aggregation}, ", rules: []", true},
		"declared, in place of others": {rbacv1.ClusterRole{Rules: all}, ", rules: []", false},
	} {
		for _, kind := range []workv1.UpdateStrategyType{workv1.UpdateStrategyTypeUpdate, workv1.UpdateStrategyTypeServerSideApply} {
			t.Run(name+", "+string(kind), func(t *testing.T) {
				w := newWorld(t)
				raw := w.rawSource("hub1", func(c *agent.Config) { c.Kube = w.narrowAccount() })
				test.live.Name = w.namespace
				_, err := w.cluster.RbacV1().ClusterRoles().Create(w.Context(), &test.live, metav1.CreateOptions{})
				kit.NoError(t, err)
				raw.send(w.executedSpec(raw, 1, `
- resourceIdentifier: {group: rbac.authorization.k8s.io, resource: clusterroles, name: NAMESPACE}
  updateStrategy: {type: `+string(kind)+`, serverSideApply: {force: true}}
`, "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: NAMESPACE, labels: {adopted: 'true'}}"+test.rules+"}"), nil)
				if test.refused {
					raw.says(0, workv1.ReasonAppliedManifestFailed, "error: permission escalation, will try again in 1m0s")
				} else {
					raw.shows(1, 0, "", "Applied=True", "Available=True")
				}
				role, err := w.cluster.RbacV1().ClusterRoles().Get(w.Context(), w.namespace, metav1.GetOptions{})
				if err != nil || (role.Labels["adopted"] == "") != test.refused || !test.refused && len(role.Rules) > 0 {
					t.Errorf("the role has labels %v, rules %v, %v", role.Labels, role.Rules, err)
				}
				kit.NoError(t, w.cluster.RbacV1().ClusterRoles().Delete(w.Context(), w.namespace, metav1.DeleteOptions{}))
			})
		}
	}
}

// narrowAccount returns that of an agent which may impersonate the executor by the narrower right of Kubernetes 1.36 only, and has the
// executor write ClusterRoles.
func (w *fixture) narrowAccount() *rest.Config {
	w.Helper()
	config := w.agentAccount()
	w.grant("system:serviceaccount:"+w.namespace+":executor1", "executor1", []rbacv1.PolicyRule{
		{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, Verbs: []string{"get", "create", "update", "patch", "delete"}},
	})
	w.grant("system:serviceaccount:"+w.namespace+":"+w.namespace+"-agent", "narrow", []rbacv1.PolicyRule{
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"serviceaccounts"}, Verbs: []string{"impersonate:serviceaccount"}}, // on what it may by "*"
	})
	return config
}

// says waits until Applied of manifest i of the spy is False, with a reason and the end of a message.
func (r *rawSource) says(i int, reason, end string) {
	r.Helper()
	kit.Eventually(r, "Applied says "+end, func() error {
		manifests := r.last("uid-spy").Status.ResourceStatus.Manifests
		if len(manifests) > i {
			c := meta.FindStatusCondition(manifests[i].Conditions, "Applied")
			if c != nil && c.Status == metav1.ConditionFalse && c.Reason == reason && strings.HasSuffix(c.Message, end) {
				return nil
			}
		}
		return fmt.Errorf("status %+v", manifests)
	})
}

// agentAccount returns the configuration of a service account with the rights that an agent needs,
// but for impersonation.
func (w *fixture) agentAccount() *rest.Config {
	w.Helper()
	account := w.namespace + "-agent"
	if _, err := w.cluster.CoreV1().ServiceAccounts(w.namespace).Create(w.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	request, err := w.cluster.CoreV1().ServiceAccounts(w.namespace).CreateToken(w.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	kit.NoError(w, err)
	all := []string{"*"}
	w.grant("system:serviceaccount:"+w.namespace+":"+account, "agent", []rbacv1.PolicyRule{
		{APIGroups: []string{"work.open-cluster-management.io", rbacv1.GroupName, "authorization.k8s.io"}, Resources: all, Verbs: all},
		{APIGroups: []string{"apiextensions.k8s.io"}, Resources: all, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps", "secrets"}, Verbs: all},
	})
	config := rest.AnonymousClientConfig(plane.REST())
	config.BearerToken, config.QPS = request.Status.Token, -1
	return config
}

// TestAdmissionSeesTheExecutor has an admission policy that admits ConfigMaps of the executor only.
func TestAdmissionSeesTheExecutor(t *testing.T) {
	w := newWorld(t)
	works := w.source("hub1")
	w.admitOnly("system:serviceaccount:" + w.namespace + ":executor1")
	w.bind("config", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "create", "update", "patch", "delete"}})
	w.agent()
	w.Create(works, w.executed("web", configMap("a", "1")))
	w.Is(works, "web", "Applied=True", "Available=True")
	w.change(works, "web", configMap("a", "2"))
	w.data("a", "2")
	// So is server-side apply, and what is repaired.
	w.Change(works, "web", func(work *workv1.ManifestWork) {
		w.options(&work.Spec, `[{resourceIdentifier: {group: "", resource: configmaps, namespace: NAMESPACE, name: a}, updateStrategy: {type: ServerSideApply}}]`)
		work.Spec.Workload = w.work("", configMap("a", "3")).Spec.Workload
	})
	w.data("a", "3")
	w.Is(works, "web", "Applied=True", "Available=True")
	w.deleteConfigMap("a")
	w.data("a", "3")

	w.Create(works, w.work("agents", configMap("b", "1")))
	w.manifestSays(works, "agents", 0, "only its executor may write here")
	w.remove(works, "web") // by the agent, whatever the executor may
	w.data("a", "")
}

// TestCreationByName: RBAC does not know the name of what is being created. An executor that may
// create objects of certain names only has them created by the agent, as before.
func TestCreationByName(t *testing.T) {
	w := newWorld(t)
	works := w.source("hub1")
	w.bind("config", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"a", "applied"},
		Verbs: []string{"get", "create", "update", "patch", "delete"}})
	w.agent()
	work := w.executed("web", configMap("a", "1"), configMap("b", "1"), configMap("applied", "1"))
	w.options(&work.Spec, `[{resourceIdentifier: {group: "", resource: configmaps, namespace: NAMESPACE, name: applied}, updateStrategy: {type: ServerSideApply}}]`)
	w.Create(works, work)
	w.manifestSays(works, "web", 1, "not allowed to apply the resource  configmaps, "+w.namespace+" b, will try again in 1m0s")
	w.data("a", "1")
	w.data("applied", "1")
	w.data("b", "")
}

// TestImpersonationEnds takes the right to impersonate from an agent that uses it.
func TestImpersonationEnds(t *testing.T) {
	w := newWorld(t)
	works := w.source("hub1")
	w.bind("config", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}})
	config := w.agentAccount()
	w.bindImpersonation()
	var mu sync.Mutex
	var users []string
	kit.Intercept(config, func(next http.RoundTripper, request *http.Request) (*http.Response, error) {
		if strings.Contains(request.URL.Path, "/configmaps") && request.Method != http.MethodGet {
			mu.Lock()
			users = append(users, request.Header.Get("Impersonate-User"))
			mu.Unlock()
		}
		return next.RoundTrip(request)
	})
	last := func(want string) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if len(users) == 0 || users[len(users)-1] != want {
			t.Errorf("writes were made as %q, the last one not as %q", users, want)
		}
	}
	executor := "system:serviceaccount:" + w.namespace + ":executor1"
	kit.Eventually(w, "the agent may impersonate", func() error {
		asAgent := rest.CopyConfig(config)
		asAgent.Impersonate.UserName = executor
		_, err := kubernetes.NewForConfigOrDie(asAgent).CoreV1().ConfigMaps(w.namespace).List(w.Context(), metav1.ListOptions{})
		return err
	})
	w.agent(func(c *agent.Config) { c.Kube = config })
	w.Create(works, w.executed("web", configMap("a", "1")))
	w.Is(works, "web", "Applied=True")
	last(executor)
	kit.NoError(t, w.cluster.RbacV1().RoleBindings(w.namespace).Delete(w.Context(), "impersonate", metav1.DeleteOptions{}))
	kit.Eventually(w, "the agent may not impersonate", func() error {
		asAgent := rest.CopyConfig(config)
		asAgent.Impersonate.UserName = executor
		if _, err := kubernetes.NewForConfigOrDie(asAgent).CoreV1().ConfigMaps(w.namespace).List(w.Context(), metav1.ListOptions{}); err == nil {
			return errors.New("it may")
		}
		return nil
	})
	w.change(works, "web", configMap("a", "2"))
	w.data("a", "2")
	w.Is(works, "web", "Applied=True")
	last("") // that as the executor was refused
}

// bindImpersonation lets the service account of agentAccount impersonate those of the namespace.
func (w *fixture) bindImpersonation() {
	w.Helper()
	if _, err := w.cluster.RbacV1().Roles(w.namespace).Create(w.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "impersonate"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"impersonate"}, ResourceNames: []string{"executor1"}}},
	}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	if _, err := w.cluster.RbacV1().RoleBindings(w.namespace).Create(w.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "impersonate"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "impersonate"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.namespace, Name: w.namespace + "-agent"}},
	}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// admitOnly has the API server refuse ConfigMaps in the namespace that another user writes.
func (w *fixture) admitOnly(user string) {
	w.Helper()
	group := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	for resource, text := range map[string]string{
		"validatingadmissionpolicies": `{kind: ValidatingAdmissionPolicy, spec: {failurePolicy: Fail, matchConstraints: {
			namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}},
			resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}]},
			validations: [{expression: "request.userInfo.username == 'USER' && 'system:serviceaccounts' in request.userInfo.groups", message: only its executor may write here}]}}`,
		"validatingadmissionpolicybindings": `{kind: ValidatingAdmissionPolicyBinding, spec: {policyName: NAMESPACE, validationActions: [Deny]}}`,
	} {
		text = strings.NewReplacer("NAMESPACE", w.namespace, "USER", user).Replace(text)
		object := &unstructured.Unstructured{}
		kit.NoError(w, yaml.Unmarshal([]byte(strings.ReplaceAll(text, "\t", " ")), &object.Object))
		object.SetName(w.namespace)
		object.SetAPIVersion(group.String())
		client := w.dynamic().Resource(group.WithResource(resource))
		if _, err := client.Create(w.Context(), object, metav1.CreateOptions{}); err != nil {
			w.Fatal(err)
		}
		w.Cleanup(func() {
			if err := client.Delete(w.Context(), object.GetName(), metav1.DeleteOptions{}); err != nil {
				w.Log(err)
			}
		})
	}
	kit.Eventually(w, "the policy is in force", func() error {
		_, err := w.cluster.CoreV1().ConfigMaps(w.namespace).Create(w.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("it is not")
		}
		return nil
	})
}

// TestExecutorIsChanged sets, changes and removes the executor of a work.
func TestExecutorIsChanged(t *testing.T) {
	w := newWorld(t)
	raw := w.rawSource("hub1")
	options := `
- resourceIdentifier: {group: "", resource: configmaps, namespace: NAMESPACE, name: "*"}
  feedbackRules: [{type: JSONPaths, jsonPaths: [{name: k, path: .data.k}]}]
`
	generation := wire.Generation(0)
	with := func(executor *workv1.ManifestWorkExecutor) {
		generation++
		spec := w.executedSpec(raw, generation, options, configMap("a", "1"))
		spec.Bundle.Executer = executor
		raw.send(spec, nil)
	}
	of := func(kind workv1.ManifestWorkExecutorSubjectType, name string) *workv1.ManifestWorkExecutor {
		return &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
			Type: kind, ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: w.namespace, Name: name},
		}}
	}
	w.bind("config", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}})
	with(nil)
	raw.shows(generation, 0, "1", "Applied=True", "Available=True")
	with(of("ServiceAccount", "nobody"))
	raw.shows(generation, 0, "", "Applied=False", "Available=False")
	with(of("ServiceAccount", "executor1"))
	raw.shows(generation, 0, "1", "Applied=True", "Available=True")
	for _, invalid := range []*workv1.ManifestWorkExecutor{of("User", "executor1"), of("ServiceAccount", ""), of("ServiceAccount", "a:b")} {
		with(invalid)
		raw.shows(generation, 0, "", "Applied=False", "Available=False")
	}
	with(nil)
	raw.shows(generation, 0, "1", "Applied=True", "Available=True")
}

// TestDeletionUnderAnExecutor deletes a work whose executor has lost all rights, and whose object is
// held: the status does not show the object any more, and the deletion goes on.
func TestDeletionUnderAnExecutor(t *testing.T) {
	w := newWorld(t)
	raw := w.rawSource("hub1")
	w.bind("config", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}})
	raw.send(w.executedSpec(raw, 1, `
- resourceIdentifier: {group: "", resource: configmaps, namespace: NAMESPACE, name: "*"}
  feedbackRules: [{type: JSONPaths, jsonPaths: [{name: k, path: .data.k}]}]
`, held(configMap("a", "1"))), nil)
	raw.shows(1, 0, "1", "Applied=True", "Available=True")
	raw.delete("uid-spy", 2)
	raw.reported("uid-spy", 2, workv1.WorkDeleting)
	raw.shows(2, 0, "1", "Available=True")
	kit.NoError(t, w.cluster.RbacV1().RoleBindings(w.namespace).Delete(w.Context(), "config", metav1.DeleteOptions{}))
	raw.shows(2, 0, "", "Available=False")
	w.patch("a", `{"metadata":{"finalizers":null}}`)
	raw.reported("uid-spy", 2, workv1.WorkDeleted)
	w.data("a", "")
}

// TestAnotherWorksOrphan has a work whose executor may do nothing, and which orphans everything, name
// the orphans of another work: its deletion does not touch them.
func TestAnotherWorksOrphan(t *testing.T) {
	w := newWorld(t)
	raw := w.rawSource("hub1")
	orphan := func(spec *wire.Spec) *wire.Spec {
		spec.Bundle.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
		return spec
	}
	raw.send(orphan(raw.spec("owner", "uid-owner", 1, configMap("a", "1"))), nil)
	raw.reported("uid-owner", 1, workv1.WorkAvailable)
	w.names("owner", "a")
	w.requests.Take()
	raw.send(orphan(w.executedSpec(raw, 1, "[]", configMap("a", "2"))), nil)
	raw.shows(1, 0, "", "Applied=False", "Available=False")
	raw.delete("uid-spy", 2)
	raw.reported("uid-spy", 2, workv1.WorkDeleted)
	if writes := w.requests.All(kit.Named("a"), kit.Request.Writes); len(writes) > 0 {
		t.Errorf("it took %v", writes)
	}
	live, err := w.cluster.CoreV1().ConfigMaps(w.namespace).Get(w.Context(), "a", metav1.GetOptions{})
	if err != nil || live.Labels[object.AgentLabel] == "" || live.Data["k"] != "1" {
		t.Errorf("the ConfigMap is %v, %v", live, err)
	}
}
