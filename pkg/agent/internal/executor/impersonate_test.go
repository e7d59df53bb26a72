package executor_test

import (
	"cmp"
	"errors"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/pkg/agent/internal/executor"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/ignore"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// user returns whom a client makes requests as; empty: the agent.
func user(t *testing.T, client rest.Interface) string {
	t.Helper()
	name, err := client.Get().AbsPath("/whoami").Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Trim(string(name), "\"")
}

// impersonates checks whether the agent impersonates, and what it cost to know.
func (c *clock) impersonates(when string, want bool, requests int) {
	c.Helper()
	client, err := c.checks.Client(c.Context(), account)
	if err != nil {
		c.Fatal(err)
	}
	as := ""
	if want {
		as = account.String()
	}
	if got := user(c.T, client); got != as {
		c.Errorf("%s: requests are made as %q, want %q", when, got, as)
	}
	if asked := c.server.askedSelf(); asked != requests {
		c.Errorf("%s: %d requests, want %d", when, asked, requests)
	}
}

// TestImpersonationIsAskedAgain goes through the times after which it is.
func TestImpersonationIsAskedAgain(t *testing.T) {
	inBubble(t, false, false, func(c *clock) {
		c.impersonates("at first", true, 1)
		c.impersonates("soon", true, 0)
		c.server.forbidImpersonation(true)
		c.impersonates("while it is remembered", true, 0)
		time.Sleep(5 * time.Minute)
		c.impersonates("after 5 minutes", false, 1)
		c.server.forbidImpersonation(false)
		c.impersonates("while the denial is remembered", false, 0)
		time.Sleep(time.Minute)
		c.impersonates("after a minute", true, 1)
		refused := apierrors.NewForbidden(rbacv1.Resource("serviceaccounts"), "executor1", errors.New(`User "agent" cannot impersonate resource "serviceaccounts"`))
		if err := c.checks.Refused(account, object.Ref{}, refused); !errors.Is(err, refused) {
			c.Errorf("the error is %v", err)
		}
		c.impersonates("after a request was refused", true, 1)
	})
}

// TestRefused says which errors of writes are denials.
func TestRefused(t *testing.T) {
	inBubble(t, false, false, func(c *clock) {
		role := object.Ref{GroupVersionResource: rbacv1.SchemeGroupVersion.WithResource("roles"), Name: "r"}
		config := object.Ref{Name: "c"}
		escalation := apierrors.NewForbidden(rbacv1.Resource("roles"), "r", errors.New(`user "x" (groups=[]) is attempting to grant RBAC permissions not currently held: secret`))
		aggregation := apierrors.NewForbidden(rbacv1.Resource("clusterroles"), "r", errors.New("must have cluster-admin privileges to use the aggregationRule"))
		policy := apierrors.NewForbidden(rbacv1.Resource("roles"), "r", errors.New("ValidatingAdmissionPolicy 'p' denied request: no"))
		for name, test := range map[string]struct {
			ref    object.Ref
			err    error
			denied bool
		}{
			"an escalation":        {role, escalation, true},
			"an aggregation":       {role, aggregation, true},
			"a policy's refusal":   {role, policy, false},
			"of another kind":      {config, escalation, false},
			"a conflict":           {role, apierrors.NewConflict(rbacv1.Resource("roles"), "r", nil), false},
			"what is denied as is": {role, &executor.DeniedError{Verb: "get"}, true},
			"nothing":              {role, nil, false},
		} {
			got := c.checks.Refused(account, test.ref, test.err)
			var denied *executor.DeniedError
			if errors.As(got, &denied) != test.denied || !test.denied && !errors.Is(got, test.err) {
				c.Errorf("%s: %v", name, got)
			}
		}
		if got := c.checks.Refused(account, role, escalation).Error(); got != "not allowed to apply the resource rbac.authorization.k8s.io roles,  r, error: permission escalation, will try again in 1m0s" {
			c.Errorf("it says %q", got)
		}
	})
}

// TestWhatOnlyTheAPIServerCanCheck has manifests that cannot be checked before they are written.
func TestWhatOnlyTheAPIServerCanCheck(t *testing.T) {
	inBubble(t, false, false, func(c *clock) {
		ref := func(group, resource string) object.Ref {
			ref := object.Ref{Namespace: "default", Name: "r"}
			ref.Group, ref.Version, ref.Resource = group, "v1", resource
			return ref
		}
		ignoring := &strategy.Ignored{Fields: &ignore.Fields{}}
		for _, test := range []struct {
			manifest strategy.Manifest
			refused  bool // without impersonation
			creator  bool
		}{
			{strategy.Manifest{Ref: ref("", "configmaps"), Ignored: ignoring}, false, true},
			{strategy.Manifest{Ref: ref(rbacv1.GroupName, "roles")}, false, false},
			{strategy.Manifest{Ref: ref(rbacv1.GroupName, "roles"), Ignored: &strategy.Ignored{}}, false, false},
			{strategy.Manifest{Ref: ref(rbacv1.GroupName, "roles"), Ignored: ignoring}, true, false},
			{strategy.Manifest{Ref: ref(rbacv1.GroupName, "clusterrolebindings"), Ignored: ignoring}, true, false},
			{strategy.Manifest{Ref: ref("authorization.openshift.io", "rolebindings")}, true, false},
		} {
			for _, forbidden := range []bool{false, true} {
				c.server.forbidImpersonation(forbidden)
				time.Sleep(6 * time.Minute)
				clients, err := c.checks.Clients(c.Context(), account, &test.manifest)
				if (err != nil) != (forbidden && test.refused) {
					c.Errorf("%s, impersonation forbidden %t: %v", test.manifest.Ref, forbidden, err)
				}
				var ignored *ignore.Error
				if errors.As(err, &ignored) != (err != nil && test.manifest.Ignored != nil) {
					c.Errorf("%s: the error is of another kind: %v", test.manifest.Ref, err)
				}
				if err == nil && ((clients.Client == nil) != forbidden || (clients.Creator != nil) != (test.creator && !forbidden)) {
					c.Errorf("%s, impersonation forbidden %t: %+v", test.manifest.Ref, forbidden, clients)
				}
			}
		}
	})
}

// TestRolesBecomeWhatTheyDeclare: an agent that may not impersonate writes no rules that the executor has not declared.
func TestRolesBecomeWhatTheyDeclare(t *testing.T) {
	const (
		reads      = `rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]`
		all        = `rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]`
		aggregates = `aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}`
		label      = `metadata: {name: r, labels: {rbac.authorization.k8s.io/aggregate-to-view: "true"}}`
	)
	inBubble(t, false, false, func(c *clock) {
		c.server.forbidImpersonation(true)
		for name, test := range map[string]struct {
			kind, declared, next string
			strategy             workv1.UpdateStrategyType
			want                 bool
		}{
			"as declared":                       {declared: reads, next: reads, want: true},
			"neither has any":                   {declared: label, next: `rules: []`, want: true},
			"rules are undeclared":              {declared: label, next: all},
			"rules are null":                    {declared: `rules: null`, next: all},
			"others":                            {declared: reads, next: all},
			"by server-side apply":              {declared: label, next: all, strategy: workv1.UpdateStrategyTypeServerSideApply},
			"of what only is created":           {declared: label, next: all, strategy: workv1.UpdateStrategyTypeCreateOnly, want: true},
			"an aggregation is undeclared":      {declared: `rules: []`, next: `rules: [], ` + aggregates},
			"an aggregation is declared":        {declared: aggregates, next: all + ", " + aggregates, want: true},
			"an aggregation of nothing":         {declared: `aggregationRule: {}`, next: all},
			"an aggregation, which no Role has": {kind: "Role", declared: aggregates, next: all},
			"a Role as declared":                {kind: "Role", declared: reads, next: reads, want: true},
			"a Role, undeclared":                {kind: "Role", declared: label, next: all},
			"subjects are undeclared": {kind: "RoleBinding", declared: `roleRef: {kind: Role, name: r}`,
				next: `roleRef: {kind: Role, name: r}, subjects: [{kind: Group, name: g}]`, want: true},
		} {
			ref := object.Ref{GroupVersionResource: rbacv1.SchemeGroupVersion.WithResource(strings.ToLower(cmp.Or(test.kind, "ClusterRole")) + "s"), Name: "r"}
			m := &strategy.Manifest{Ref: ref, Strategy: cmp.Or(test.strategy, workv1.UpdateStrategyTypeUpdate), Desired: fields(t, test.declared)}
			clients, err := c.checks.Clients(c.Context(), account, m)
			if err != nil {
				t.Fatal(err)
			}
			if clients.Verify != nil {
				err = clients.Verify(fields(t, test.next))
			}
			if (err == nil) != test.want || err != nil && !strings.Contains(err.Error(), "only the API server can check") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// fields returns an object of these, in YAML.
func fields(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte("{"+text+"}"), &obj.Object); err != nil {
		t.Fatal(err)
	}
	return obj
}

// TestReadsAreAskedOnce counts the requests for reading and writing.
func TestReadsAreAskedOnce(t *testing.T) {
	inBubble(t, false, false, func(c *clock) {
		m := manifest(t, "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: default, name: c}}", nil)
		read := func(when string, allowed bool, recheck time.Duration, requests int) {
			t.Helper()
			got, err := c.checks.MayRead(c.Context(), account, m.Ref)
			if asked := c.server.asked(); (err == nil) != allowed || got != recheck || asked != requests {
				c.Errorf("%s: %v, again in %v, %d requests; want allowed %t, again in %v, %d requests", when, err, got, asked, allowed, recheck, requests)
			}
		}
		read("denied", false, time.Minute, 1)
		read("denied again", false, time.Minute, 0)
		c.server.set(true)
		time.Sleep(time.Minute)
		read("allowed", true, 0, 1)
		c.says("to write", m, true, 5*time.Minute, 4)
		read("still", true, 0, 0)
		c.server.set(false)
		c.server.deliver("ADDED", "rolebindings", "200", "default", "b", bound("ServiceAccount", account.Namespace, account.Name))
		c.wantTold("a change of rights", 1)
		read("just changed", false, 2*time.Second, 1)
	})
}
