package overrides

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/test/kit"
)

const (
	settings = `{"apiVersion":"v1","data":{"value":"1"},"kind":"ConfigMap","metadata":{"name":"settings","namespace":"shop"}}`
	web      = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},"spec":{"ports":[1,2],"replicas":1}}`
)

func templateOf(manifests ...string) *workv1.ManifestWorkSpec {
	spec := &workv1.ManifestWorkSpec{}
	for _, raw := range manifests {
		spec.Workload.Manifests = append(spec.Workload.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(raw)}})
	}
	return spec
}

func berlin() *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{}
	c.Name, c.Labels = "berlin", map[string]string{"region": "eu", "replicas": "3"}
	c.Annotations = map[string]string{"owner": "shops", clusterv1.LastSeenAnnotationKey: "now"}
	c.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{{Name: "tier", Value: "gold"}}
	c.Status.Version.Kubernetes = "v1.36.1"
	return c
}

// override returns a WorkOverride with these rules, in YAML.
func override(t testing.TB, name, rules string) *workwirev1alpha1.WorkOverride {
	t.Helper()
	o := &workwirev1alpha1.WorkOverride{ObjectMeta: metav1.ObjectMeta{Name: name}}
	kit.NoError(t, yaml.UnmarshalStrict([]byte(rules), &o.Spec.Rules))
	return o
}

func compilerOf(t testing.TB) *Compiler {
	t.Helper()
	c, err := NewCompiler()
	kit.NoError(t, err)
	return c
}

// stored is what ConfigMaps and Secrets have.
func stored(from Reference, key string) (string, error) {
	text, ok := map[string]string{
		"ConfigMap limits berlin": "7", "ConfigMap patches eu-berlin": "spec: {replicas: 8}",
		"Secret passwords berlin": "secret-text", "Secret broken berlin": "secret-text: [",
	}[fmt.Sprintf("%s %s %s", from.Kind, from.Name, key)]
	if !ok {
		return "", fmt.Errorf("%s %s has no key %s", from.Kind, from.Name, key)
	}
	return text, nil
}

func TestRender(t *testing.T) {
	compiler := compilerOf(t)
	const (
		toWeb  = `[{patches: [{target: {kind: Deployment, name: web}, json: [%s]}]}]`
		merged = `[{patches: [{target: {kind: Deployment}, merge: {%s}}]}]`
	)
	var operations []string
	for i := range 64 {
		operations = append(operations, fmt.Sprintf(`{op: copy, from: /spec, path: /spec/a%d}`, i))
	}
	copies := strings.Join(operations, ", ")
	replicas := func(n string) string { return strings.Replace(web, `"replicas":1`, `"replicas":`+n, 1) }
	for name, c := range map[string]struct {
		rules string
		want  string // of the Deployment
		err   string
	}{
		"an expression":     {rules: fmt.Sprintf(toWeb, `{op: replace, path: /spec/replicas, expression: "int(cluster.labels.replicas)"}`), want: replicas("3")},
		"a value":           {rules: fmt.Sprintf(toWeb, `{op: replace, path: /spec/replicas, value: 5}`), want: replicas("5")},
		"a float":           {rules: fmt.Sprintf(toWeb, `{op: replace, path: /spec/replicas, value: 1.50e1}`), want: replicas("15")},
		"null":              {rules: fmt.Sprintf(toWeb, `{op: replace, path: /spec/replicas, expression: "null"}`), want: replicas("null")},
		"claims":            {rules: fmt.Sprintf(toWeb, `{op: replace, path: /spec/replicas, expression: "cluster.claims.tier == 'gold' ? 9 : 1"}`), want: replicas("9")},
		"versions":          {rules: fmt.Sprintf(toWeb, `{op: replace, path: /spec/replicas, expression: "semver(cluster.version).minor()"}`), want: replicas("36")},
		"annotations":       {rules: fmt.Sprintf(toWeb, `{op: replace, path: /spec/replicas, expression: "cluster.annotations"}`), want: replicas(`{"owner":"shops"}`)},
		"no capacity":       {rules: fmt.Sprintf(toWeb, `{op: replace, path: /spec/replicas, expression: "cluster.capacity[?'cpu'].orValue('1')"}`), want: replicas(`"1"`)},
		"two operations":    {rules: fmt.Sprintf(toWeb, `{op: copy, from: /spec/replicas, path: /spec/ports/0}, {op: remove, path: /spec/ports/2}`), want: strings.Replace(web, "[1,2]", "[1,1]", 1)},
		"a merge patch":     {rules: fmt.Sprintf(merged, `value: {spec: {replicas: 4, ports: null}}`), want: strings.Replace(replicas("4"), `"ports":[1,2],`, "", 1)},
		"a computed one":    {rules: fmt.Sprintf(merged, `expression: "{'spec': {'replicas': size(cluster.name)}}"`), want: replicas("6")},
		"a ConfigMap":       {rules: fmt.Sprintf(toWeb, `{op: replace, path: /spec/replicas, configMap: {name: limits}}`), want: replicas(`"7"`)},
		"a key":             {rules: fmt.Sprintf(merged, `configMap: {name: patches, key: "eu-{cluster}"}`), want: replicas("8")},
		"a Secret":          {rules: fmt.Sprintf(toWeb, `{op: replace, path: /spec/replicas, secret: {name: passwords}}`), want: replicas(`"secret-text"`)},
		"names":             {rules: `[{clusters: {names: [bonn]}, patches: [{target: {kind: Deployment}, merge: {value: {spec: {replicas: 2}}}}]}]`, want: web},
		"labels":            {rules: `[{clusters: {labelSelector: {matchLabels: {region: eu}}}, patches: [{target: {kind: Deployment}, merge: {value: {spec: {replicas: 2}}}}]}]`, want: replicas("2")},
		"other labels":      {rules: `[{clusters: {labelSelector: {matchLabels: {region: us}}}, patches: [{target: {kind: Deployment}, merge: {value: {spec: {replicas: 2}}}}]}]`, want: web},
		"selected claims":   {rules: `[{clusters: {names: [berlin], claimSelector: {matchLabels: {tier: gold}}}, patches: [{target: {kind: Deployment}, merge: {value: {spec: {replicas: 2}}}}]}]`, want: replicas("2")},
		"other claims":      {rules: `[{clusters: {claimSelector: {matchLabels: {tier: iron}}}, patches: [{target: {kind: Deployment}, merge: {value: {spec: {replicas: 2}}}}]}]`, want: web},
		"the last rule":     {rules: `[{patches: [{target: {kind: Deployment}, merge: {value: {spec: {replicas: 2}}}}]}, {patches: [{target: {kind: Deployment}, json: [{op: test, path: /spec/replicas, value: 2}, {op: replace, path: /spec/replicas, value: 3}]}]}]`, want: replicas("3")},
		"group, namespace":  {rules: `[{patches: [{target: {kind: Deployment, group: apps, namespace: shop}, merge: {value: {spec: {replicas: 2}}}}]}]`, want: replicas("2")},
		"the core group":    {rules: `[{patches: [{target: {kind: ConfigMap, group: core}, merge: {value: {data: {value: "1"}}}}]}]`, want: web},
		"another namespace": {rules: `[{patches: [{target: {kind: Deployment, namespace: other}, merge: {value: {}}}]}]`, err: "cluster berlin: WorkOverride o, rule 1: patch 1: no manifest is Deployment other/*"},
		"no such label": {
			rules: `[{name: first, patches: [{target: {kind: Deployment}, json: [{op: add, path: /spec/a, expression: "cluster.labels.nothing"}]}]}]`,
			err:   `cluster berlin: WorkOverride o, rule first: patch 1 of Deployment web, operation 1 (add /spec/a), expression "cluster.labels.nothing": no such key: nothing`,
		},
		"a wrong expression":            {rules: fmt.Sprintf(toWeb, `{op: add, path: /a, expression: "cluster."}`), err: `rule 1: patch 1: operation 1: expression "cluster.": ERROR: <input>:1:9: Syntax error`},
		"a wrong one for others":        {rules: `[{clusters: {names: [bonn]}, patches: [{target: {kind: Deployment}, json: [{op: add, path: /a, expression: "cluster."}]}]}]`, want: web},
		"a wrong selector":              {rules: `[{clusters: {labelSelector: {matchExpressions: [{key: a, operator: Nearly}]}}, patches: [{target: {kind: Deployment}, merge: {value: {}}}]}]`, err: `labelSelector: "Nearly" is not a valid label selector operator`},
		"no path":                       {rules: fmt.Sprintf(toWeb, `{op: replace, path: /nothing/a, value: 1}`), err: "operation 1 (replace /nothing/a): replace operation does not apply"},
		"a test":                        {rules: fmt.Sprintf(toWeb, `{op: test, path: /spec/replicas, value: 2}`), err: "operation 1 (test /spec/replicas): testing value /spec/replicas failed"},
		"no key":                        {rules: fmt.Sprintf(toWeb, `{op: add, path: /spec/a, secret: {name: nothing}}`), err: "operation 1 (add /spec/a): Secret nothing has no key berlin"},
		"no object":                     {rules: fmt.Sprintf(merged, `expression: "3"`), err: "merge: a merge patch must be an object"},
		"no YAML":                       {rules: fmt.Sprintf(merged, `secret: {name: broken}`), err: "merge: the key berlin of Secret broken is no YAML"},
		"text for an object":            {rules: fmt.Sprintf(merged, `secret: {name: passwords}`), err: "merge: a merge patch must be an object"},
		"two sources":                   {rules: fmt.Sprintf(merged, `expression: "3", value: 3`), err: "merge: it has 2 of value, expression, configMap and secret"},
		"no value":                      {rules: fmt.Sprintf(toWeb, `{op: add, path: /spec/a}`), err: "operation 1: it has 0 of value"},
		"an unneeded value":             {rules: fmt.Sprintf(toWeb, `{op: remove, path: /spec/a, value: 1}`), err: "operation 1: remove has no value"},
		"an unneeded from":              {rules: fmt.Sprintf(toWeb, `{op: remove, path: /spec/a, from: /b}`), err: "move and copy, and no others, have a from"},
		"the whole":                     {rules: fmt.Sprintf(toWeb, `{op: remove, path: ""}`), err: `the path "" must begin with /`},
		"neither":                       {rules: `[{patches: [{target: {kind: Deployment}}]}]`, err: "patch 1: it has neither json nor merge"},
		"no kind":                       {rules: `[{patches: [{target: {name: web}, merge: {value: {}}}]}]`, err: "patch 1: its target has no kind"},
		"no patches":                    {rules: `[{}]`, err: "it has no patches"},
		"no name left":                  {rules: fmt.Sprintf(toWeb, `{op: remove, path: /metadata/name}`), err: "patch 1 of Deployment web: the result has no apiVersion, kind and metadata.name"},
		"a type without JSON":           {rules: fmt.Sprintf(toWeb, `{op: add, path: /spec/a, expression: "b'a'"}`), err: "it returns a bytes"},
		"an empty optional":             {rules: fmt.Sprintf(toWeb, `{op: add, path: /spec/a, expression: "cluster.labels[?'a']"}`), err: "an optional without a value"},
		"a key that is no text":         {rules: fmt.Sprintf(toWeb, `{op: add, path: /spec/a, expression: "{1: 2}"}`), err: "a map with a key that is no text"},
		"an expression without end":     {rules: fmt.Sprintf(toWeb, `{op: add, path: /spec/a, expression: "'`+strings.Repeat("a,", 1000)+`'.split(',').all(a, '`+strings.Repeat("a,", 1000)+`'.split(',').all(b, a != b + 'b'))"}`), err: "the expressions cost too much for one cluster"},
		"a copy of a copy":              {rules: fmt.Sprintf(toWeb, copies), err: "more than the 512000 bytes that a work may have"},
		"a list that shares its items":  {rules: fmt.Sprintf(toWeb, `{op: add, path: /spec/a, expression: "[[1,2,3]].map(a, [a,a,a,a,a,a,a,a,a,a])`+strings.Repeat(".map(a, [a,a,a,a,a,a,a,a,a,a])", 6)+`"}`), err: "more than the 512000 bytes that a work may have"},
		"the value null by a field":     {rules: fmt.Sprintf(toWeb, `{op: add, path: /spec/a, value: null}`), err: "for null: the expression null"},
		"a metadata that is another":    {rules: fmt.Sprintf(toWeb, `{op: replace, path: /metadata, value: [1]}`), err: "the result has no apiVersion, kind and metadata.name"},
		"an index that is much too far": {rules: fmt.Sprintf(toWeb, `{op: add, path: /spec/ports/1000000000, value: 1}`), err: "operation 1 (add /spec/ports/1000000000)"},
	} {
		t.Run(name, func(t *testing.T) {
			template := templateOf(settings, web)
			spec, err := compiler.Compile([]*workwirev1alpha1.WorkOverride{override(t, "o", c.rules)}).Render(template, berlin(), stored)
			if c.err != "" {
				var of *Error
				if spec != nil || err == nil || !strings.Contains(err.Error(), c.err) || !errors.As(err, &of) || of.Cluster != "berlin" || of.Override != "o" {
					t.Fatalf("%v, want %q", err, c.err)
				}
				if strings.Contains(err.Error(), "secret-text") {
					t.Errorf("the error has a value of a Secret: %v", err)
				}
				return
			}
			kit.NoError(t, err)
			if got := string(spec.Workload.Manifests[1].Raw); got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
			if got := string(spec.Workload.Manifests[0].Raw); got != settings {
				t.Errorf("another manifest has changed: %s", got)
			}
			if got := string(template.Workload.Manifests[1].Raw); got != web {
				t.Errorf("the template has changed: %s", got)
			}
		})
	}
}

// TestOrder applies the overrides of a set in the order of their names, and not more expressions than they may have together.
func TestOrder(t *testing.T) {
	const to = `[{patches: [{target: {kind: Deployment}, json: [{op: add, path: /spec/ports/-, value: %d}]}]}]`
	a, b := override(t, "a", fmt.Sprintf(to, 3)), override(t, "b", fmt.Sprintf(to, 4))
	compiler := compilerOf(t)
	spec, err := compiler.Compile([]*workwirev1alpha1.WorkOverride{b, a}).Render(templateOf(web), berlin(), nil)
	kit.NoError(t, err)
	if got := string(spec.Workload.Manifests[0].Raw); !strings.Contains(got, "[1,2,3,4]") {
		t.Errorf("%s", got)
	}
	var list []*workwirev1alpha1.WorkOverride
	for i := range MaxExpressions + 1 {
		list = append(list, override(t, fmt.Sprintf("o%03d", i),
			fmt.Sprintf(`[{patches: [{target: {kind: Deployment}, json: [{op: replace, path: /spec/replicas, expression: "%d"}]}]}]`, i)))
	}
	if _, err = compiler.Compile(list[:MaxExpressions]).Render(templateOf(web), berlin(), nil); err != nil {
		t.Error(err)
	}
	if _, err = compiler.Compile(list).Render(templateOf(web), berlin(), nil); err == nil || !strings.Contains(err.Error(), "at most 64 expressions") {
		t.Errorf("%v", err)
	}
}

func TestNoRuleIsTheTemplate(t *testing.T) {
	template := templateOf(web)
	spec, err := compilerOf(t).Compile(nil).Render(template, berlin(), nil)
	if spec != template || err != nil {
		t.Errorf("%v, %v", spec, err)
	}
}

func TestReferences(t *testing.T) {
	rules := compilerOf(t).Compile([]*workwirev1alpha1.WorkOverride{override(t, "o", `
- patches:
  - target: {kind: Deployment}
    json: [{op: add, path: /a, secret: {name: s}}, {op: add, path: /b, configMap: {name: c}}, {op: add, path: /c, configMap: {name: c, key: a}}, {op: remove, path: /a}]
    merge: {configMap: {name: b}}
`)})
	if got := fmt.Sprint(rules.References()); got != "[{ConfigMap b} {ConfigMap c} {Secret s}]" {
		t.Errorf("%s", got)
	}
}

func TestSameCluster(t *testing.T) {
	for name, change := range map[string]func(*clusterv1.ManagedCluster){
		"label":      func(c *clusterv1.ManagedCluster) { c.Labels["a"] = "b" },
		"annotation": func(c *clusterv1.ManagedCluster) { c.Annotations["a"] = "b" },
		"claim":      func(c *clusterv1.ManagedCluster) { c.Status.ClusterClaims[0].Value = "iron" },
		"version":    func(c *clusterv1.ManagedCluster) { c.Status.Version.Kubernetes = "v1.37.0" },
		"capacity":   func(c *clusterv1.ManagedCluster) { c.Status.Capacity = clusterv1.ResourceList{"cpu": {}} },
	} {
		c := berlin()
		if change(c); SameCluster(berlin(), c) {
			t.Errorf("%s: the same", name)
		}
	}
	c := berlin()
	c.Annotations[clusterv1.LastSeenAnnotationKey], c.Status.Conditions = "later", []metav1.Condition{{Type: "A"}}
	if !SameCluster(berlin(), c) {
		t.Error("what no rule can read distinguishes them")
	}
}

// FuzzRender renders whatever somebody writes into an override and a template.
func FuzzRender(f *testing.F) {
	compiler := compilerOf(f)
	f.Add(`[{"patches":[{"target":{"kind":"Deployment"},"json":[{"op":"add","path":"/spec/a","value":{"b":[1]}},{"op":"move","from":"/spec/a","path":"/spec/b"}]}]}]`, web)
	f.Add(`[{"clusters":{"names":["berlin"]},"patches":[{"target":{"kind":"ConfigMap"},"merge":{"expression":"{'data': cluster.labels}"}}]}]`, settings)
	f.Add(`[{"patches":[{"target":{"kind":"Deployment"},"merge":{"value":{"spec":null}},"json":[{"op":"copy","from":"/spec/ports/0","path":"/spec/ports/-"}]}]}]`, web)
	f.Add(`[{"patches":[{"target":{"kind":"ConfigMap"},"merge":{"configMap":{"name":"limits"}},"json":[{"op":"replace","path":"/data/value","secret":{"name":"passwords"}}]}]}]`, settings)
	f.Fuzz(func(t *testing.T, rules, manifest string) {
		o := &workwirev1alpha1.WorkOverride{ObjectMeta: metav1.ObjectMeta{Name: "o"}}
		if yaml.Unmarshal([]byte(rules), &o.Spec.Rules) != nil {
			return
		}
		spec, err := compiler.Compile([]*workwirev1alpha1.WorkOverride{o}).Render(templateOf(manifest), berlin(), stored)
		if (spec == nil) == (err == nil) {
			t.Fatalf("%v, %v", spec, err)
		}
		if err != nil {
			if strings.Contains(err.Error(), "secret-text") {
				t.Errorf("the error has a value of a Secret: %v", err)
			}
			return
		}
		if got := len(spec.Workload.Manifests[0].Raw); got > max(workv1.MaxManifestsSize, len(manifest)) {
			t.Errorf("the result has %d bytes", got)
		}
	})
}

// TestPatchesTakeTooLong: patches without expressions have a time, too.
func TestPatchesTakeTooLong(t *testing.T) {
	m := &manifest{raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`)}
	patches := map[string]*patch{
		"operation 1 (test /kind)": {operations: []operation{{of: &workwirev1alpha1.OverrideOperation{Op: "test", Path: "/kind"}}}},
		"merge":                    {merge: &value{}},
	}
	for at, p := range patches {
		r := &rendering{until: time.Now().Add(-time.Second)}
		if where, err := r.patch(m, p); err == nil || where != at || !strings.Contains(err.Error(), "take more than") {
			t.Errorf("%s: %q, %v", at, where, err)
		}
	}
}
