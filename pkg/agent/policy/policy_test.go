package policy

import (
	"errors"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/internal/executor"
	"github.com/workwire/workwire/pkg/agent/internal/object"
)

func parsed(t *testing.T, text string) *Policy {
	t.Helper()
	p, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// rule returns the rule that refuses, "" if none does.
func rule(err error) string {
	var refused *RefusedError
	if errors.As(err, &refused) {
		return refused.Rule
	}
	return ""
}

func TestRefuseWork(t *testing.T) {
	deployer := &executor.Account{Namespace: "shop", Name: "deployer"}
	for name, test := range map[string]struct {
		policy string
		work   Work
		want   string
	}{
		"clear":                       {"requireSealed: true", Work{}, RequireSealed},
		"sealed":                      {"requireSealed: true", Work{Sealed: true}, ""},
		"no executor":                 {"requireExecutor: true", Work{Sealed: true}, RequireExecutor},
		"an executor":                 {"requireExecutor: true", Work{Executor: deployer}, ""},
		"not needed":                  {"deniedResources: [secrets]", Work{}, ""},
		"no executor of a list":       {"allowedExecutors: [shop/deployer]", Work{}, AllowedExecutors},
		"its executor":                {"allowedExecutors: [other/x, shop/deployer]", Work{Executor: deployer}, ""},
		"of the namespace":            {"allowedExecutors: [shop/*]", Work{Executor: deployer}, ""},
		"of namespaces":               {"allowedExecutors: [sh*/deployer]", Work{Executor: deployer}, ""},
		"another's":                   {"allowedExecutors: [shop/deploy, shops/deployer, deployer/shop]", Work{Executor: deployer}, AllowedExecutors},
		"none is allowed":             {"allowedExecutors: []", Work{Executor: deployer}, AllowedExecutors},
		"a namespace that is a start": {"allowedExecutors: [sho/*]", Work{Executor: deployer}, AllowedExecutors},
	} {
		if got := rule(parsed(t, test.policy).RefuseWork(test.work)); got != test.want {
			t.Errorf("%s: refused by %q, want %q", name, got, test.want)
		}
	}
	if err := (*Policy)(nil).RefuseWork(Work{}); err != nil {
		t.Errorf("no policy refuses: %v", err)
	}
}

func TestRefuseObject(t *testing.T) {
	ref := func(resource, namespace, name string) object.Ref {
		return object.Ref{GroupVersionResource: schema.ParseGroupResource(resource).WithVersion("v1"), Namespace: namespace, Name: name}
	}
	for name, test := range map[string]struct {
		policy string
		ref    object.Ref
		want   string
	}{
		"denied":                            {"deniedResources: [secrets]", ref("secrets", "a", "s"), DeniedResources},
		"another group's":                   {"deniedResources: [secrets]", ref("secrets.example.com", "a", "s"), ""},
		"denied by group":                   {"deniedResources: ['*.rbac.authorization.k8s.io']", ref("roles.rbac.authorization.k8s.io", "a", "r"), DeniedResources},
		"a star is no group's star":         {"deniedResources: ['*.apps']", ref("pods", "a", "p"), ""},
		"denied wins":                       {"{allowedResources: ['*'], deniedResources: [secrets]}", ref("secrets", "a", "s"), DeniedResources},
		"allowed":                           {"allowedResources: [deployments.apps]", ref("deployments.apps", "a", "d"), ""},
		"not allowed":                       {"allowedResources: [deployments.apps]", ref("configmaps", "a", "c"), AllowedResources},
		"none allowed":                      {"allowedResources: []", ref("configmaps", "a", "c"), AllowedResources},
		"its namespace":                     {"allowedNamespaces: [a]", ref("configmaps", "a", "c"), ""},
		"namespaces that start so":          {"allowedNamespaces: [team-*]", ref("configmaps", "team-1", "c"), ""},
		"another namespace":                 {"allowedNamespaces: [a]", ref("configmaps", "ab", "c"), AllowedNamespaces},
		"no namespace":                      {"allowedNamespaces: [a]", ref("clusterroles.rbac.authorization.k8s.io", "", "a"), AllowedClusterResources},
		"no namespace, every one":           {"allowedNamespaces: ['*']", ref("nodes", "", "n"), AllowedClusterResources},
		"no namespace, listed":              {"{allowedNamespaces: [a], allowedClusterResources: [nodes]}", ref("nodes", "", "n"), ""},
		"no namespace, only its rule":       {"allowedClusterResources: [namespaces]", ref("nodes", "", "n"), AllowedClusterResources},
		"with one, only the other's rule":   {"allowedClusterResources: [namespaces]", ref("configmaps", "a", "c"), ""},
		"a namespace itself":                {"{allowedNamespaces: [a], allowedClusterResources: [namespaces]}", ref("namespaces", "", "a"), ""},
		"a namespace that is not allowed":   {"{allowedNamespaces: [a], allowedClusterResources: ['*']}", ref("namespaces", "", "kube-system"), AllowedNamespaces},
		"a namespace that is not mentioned": {"allowedNamespaces: [a]", ref("namespaces", "", "a"), AllowedClusterResources},
	} {
		if got := rule(parsed(t, test.policy).RefuseObject(test.ref)); got != test.want {
			t.Errorf("%s: refused by %q, want %q", name, got, test.want)
		}
	}
	if err := (*Policy)(nil).RefuseObject(ref("secrets", "a", "s")); err != nil {
		t.Errorf("no policy refuses: %v", err)
	}
	const want = "refused by the policy of the cluster's owner: resource secrets is denied (rule deniedResources)"
	if err := parsed(t, "deniedResources: [secrets]").RefuseObject(ref("secrets", "a", "s")); err.Error() != want {
		t.Errorf("message %q, want %q", err, want)
	}
}

// TestParseRefuses: what is misspelled or cut short must not allow more than was meant.
func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "no rule",
		"{}":                              "no rule",
		"requireExecutor: false":          "no rule",
		"[requireExecutor]":               "map of rules",
		"requireExecuter: true":           "unknown field",
		"RequireExecutor: true\nextra: 1": "unknown field",
		"requireexecutor: true":           "unknown field",
		"requireExecutor: true\nrequireExecutor: false":   "already set",
		"requireExecutor: \"true\"":                       "cannot unmarshal",
		"allowedNamespaces:":                              "allowedNamespaces has no value",
		"allowedNamespaces: [a, null]":                    `"" must be`,
		"deniedResources: [Secret]":                       `"Secret" must be a resource`,
		"deniedResources: ['secrets/status']":             "must be a resource",
		"deniedResources: ['sec*']":                       "must be a resource",
		"allowedNamespaces: ['*-x']":                      "must be a name",
		"allowedExecutors: [deployer]":                    "must be NAMESPACE/NAME",
		"allowedExecutors: ['system:x/y']":                "must be NAMESPACE/NAME",
		"requireExecutor: false\nallowedExecutors: [a/b]": "contradicts",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", text, err, want)
		}
	}
}

// FuzzParse: whatever is accepted has a rule, and decides without a panic.
func FuzzParse(f *testing.F) {
	example, err := os.ReadFile("../../../examples/owner-policy/policy.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(example)
	f.Add([]byte("requireSealed: true\nallowedResources: ['*', '*.apps']\nallowedNamespaces: ['*']"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse(data)
		if err != nil {
			return
		}
		if !p.restricts() {
			t.Fatalf("%q restricts nothing", data)
		}
		_ = p.RefuseWork(Work{Executor: &executor.Account{Namespace: "a", Name: "b"}})
		_ = p.RefuseObject(object.Ref{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Name: "a"})
	})
}

// TestDocumentedPolicy: the page shows the example, which allows and refuses what it says.
func TestDocumentedPolicy(t *testing.T) {
	example, err := os.ReadFile("../../../examples/owner-policy/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../docs/owner-policy.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```yaml\n"+string(example)+"```\n") {
		t.Error("docs/owner-policy.md does not show the example as it is")
	}
	p := parsed(t, string(example))
	if err := p.RefuseWork(Work{Executor: &executor.Account{Namespace: "team-a", Name: "deployer"}}); err != nil {
		t.Error(err)
	}
	for resource, want := range map[string]string{"deployments.apps": "", "secrets": AllowedResources} {
		ref := object.Ref{GroupVersionResource: schema.ParseGroupResource(resource).WithVersion("v1"), Namespace: "team-a", Name: "a"}
		if got := rule(p.RefuseObject(ref)); got != want {
			t.Errorf("%s is refused by %q, want %q", resource, got, want)
		}
	}
}
