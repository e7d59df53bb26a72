package wrap_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/ctl/wrap"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

const app = `# the whole application, as people write it
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {replicas: 1}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}, data: {text: "<b>---\n"}}
--- # a comment
apiVersion: example.com/v1
kind: Widget
metadata: {name: w}
---
---
apiVersion: v1
kind: List
items:
- {apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: b, namespace: shop}}
- apiVersion: v1
  kind: ServiceAccountList
  items:
  - {apiVersion: v1, kind: ServiceAccount, metadata: {name: a, namespace: shop}}
...
apiVersion: v1
kind: Namespace
metadata: {name: shop, uid: u, resourceVersion: "7", creationTimestamp: null, annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}"}}
status: {phase: Active}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec: {group: example.com, scope: Cluster, names: {kind: Widget, plural: widgets}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hook}
`

// TestWorks checks order, cleaning, lists and rules of a work.
func TestWorks(t *testing.T) {
	manifests, err := wrap.Parse("app.yaml", []byte(app))
	kit.NoError(t, err)
	works, warnings, err := wrap.Works(manifests, wrap.Config{Name: "shop", Cluster: "cluster1", Feedback: true, Readiness: true})
	kit.NoError(t, err)
	if len(works) != 1 || len(warnings) != 0 {
		t.Fatalf("%d works, warnings %q", len(works), warnings)
	}
	work := works[0]
	var got []string
	for _, m := range work.Spec.Workload.Manifests {
		got = append(got, string(m.Raw))
	}
	want := []string{
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.com"},"spec":{"group":"example.com","names":{"kind":"Widget","plural":"widgets"},"scope":"Cluster"}}`,
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`,
		`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"a","namespace":"shop"}}`,
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"b","namespace":"shop"}}`,
		`{"apiVersion":"v1","data":{"text":"\u003cb\u003e---\n"},"kind":"ConfigMap","metadata":{"name":"settings","namespace":"shop"}}`,
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},"spec":{"replicas":1}}`,
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"}}`,
		`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"hook"}}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("manifests (-want +got):\n%s", diff)
	}
	rules := []workv1.FeedbackRule{{Type: workv1.WellKnownStatusType}}
	if diff := cmp.Diff([]workv1.ManifestConfigOption{
		{ResourceIdentifier: workv1.ResourceIdentifier{Resource: "namespaces", Name: "shop"}, FeedbackRules: rules},
		{ResourceIdentifier: workv1.ResourceIdentifier{Group: "apps", Resource: "deployments", Namespace: "shop", Name: "web"}, FeedbackRules: rules},
	}, work.Spec.ManifestConfigs); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if work.Name != "shop" || work.Namespace != "cluster1" || work.Annotations[workv1.ReportReadinessAnnotationKey] != "true" || work.Labels[wrap.LabelKey] != "shop" {
		t.Errorf("the work is %+v", work.ObjectMeta)
	}
	if manifests[0].Object.GetName() != "web" || manifests[5].Object.Object["status"] == nil {
		t.Error("the input was changed")
	}
}

// TestFaults checks that errors name the file, the document and what to do.
func TestFaults(t *testing.T) {
	configMap := func(name string) string {
		return "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: " + name + ", namespace: a}}\n"
	}
	for name, c := range map[string]struct {
		text string
		c    wrap.Config
		want string // all lines, each a part of the error
	}{
		"no YAML":          {"a: [\n" + configMap("x") + "---\nb: }", wrap.Config{}, "f.yaml, document 1 (line 1): is no YAML\nf.yaml, document 3 (line 4): is no YAML"},
		"a key twice":      {"kind: A\nkind: B", wrap.Config{}, `already set in map`},
		"braces, and more": {"{kind: A}\n{kind: B}", wrap.Config{}, "document 1 (line 1): is no YAML: something follows"},
		"a JSON value":     {`{"kind": "A", "apiVersion": "v1", "metadata": {"name": "a"}} {"kind": "B"}`, wrap.Config{}, "document 1 (line 1), value 2: has no apiVersion"},
		"no object":        {"- a", wrap.Config{}, "document 1 (line 1): is no object: want apiVersion, kind and metadata"},
		"no kind":          {configMap("x") + "---\napiVersion: v1\nmetadata: {name: x}", wrap.Config{}, "document 2 (line 3): has no kind"},
		"no apiVersion":    {"kind: Pod", wrap.Config{}, "has no apiVersion"},
		"no name":          {"{apiVersion: v1, kind: Pod}", wrap.Config{}, "has no metadata.name"},
		"generated name":   {"{apiVersion: v1, kind: Pod, metadata: {generateName: x-}}", wrap.Config{}, "has a generateName"},
		"item":             {"{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Pod, metadata: {name: p}}, {kind: Pod}, 3]}", wrap.Config{}, "item 2 has no apiVersion\nitem 3 is no object"},
		"deep":             {"{apiVersion: v1, kind: X, metadata: {name: x}, a: " + strings.Repeat("[", 300) + strings.Repeat("]", 300) + "}", wrap.Config{}, "nested deeper than 256 levels"},
		"deep lists":       {strings.Repeat("{kind: List, items: [", 12) + strings.Repeat("]}", 12), wrap.Config{}, "lists in lists"},
		"nothing":          {"# nothing\n---\n", wrap.Config{}, "there is no manifest"},
		"twice":            {configMap("x") + configMap("z") + configMap("x"), wrap.Config{}, "f.yaml, document 3 (line 5): ConfigMap x is there twice: it is also in f.yaml, document 1 (line 1)"},
		"no namespace":     {"{apiVersion: v1, kind: Pod, metadata: {name: p}}", wrap.Config{}, "Pod p has no namespace: set metadata.namespace, or --object-namespace"},
		"large":            {configMap("x"), wrap.Config{MaxBytes: 50}, "ConfigMap x has 78 bytes as JSON; a work holds 50"},
		"work's name":      {configMap("x"), wrap.Config{Name: "A_"}, `the name "A_" of the work is invalid`},
		"more than a work": {configMap("x"), wrap.Config{MaxBytes: 1 << 20, MaxManifests: 6000}, "a work has 1 to 512000 bytes\na work has 1 to 5000 manifests"},
	} {
		t.Run(name, func(t *testing.T) {
			manifests, err := wrap.Parse("f.yaml", []byte(c.text))
			if err == nil {
				if c.c.Name == "" {
					c.c.Name = "work"
				}
				_, _, err = wrap.Works(manifests, c.c)
			}
			for want := range strings.Lines(c.want) {
				if err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
					t.Errorf("%v, want %q", err, want)
				}
			}
		})
	}
}

// TestNamespace checks which objects get the namespace of the configuration.
// TestHooks: hooks of Helm are left out and named, unless they are asked for.
func TestHooks(t *testing.T) {
	manifests, err := wrap.Parse("chart.yaml", []byte(`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: shop}}
---
{apiVersion: batch/v1, kind: Job, metadata: {name: migrate, namespace: shop, annotations: {helm.sh/hook: "pre-install,pre-upgrade"}}}`))
	kit.NoError(t, err)
	for _, keep := range []bool{false, true} {
		works, warnings, err := wrap.Works(manifests, wrap.Config{Name: "web", Hooks: keep})
		kit.NoError(t, err)
		if n := len(works[0].Spec.Workload.Manifests); n != 1 && !keep || n != 2 && keep {
			t.Errorf("hooks %v: %d manifests", keep, n)
		}
		if got := strings.Join(warnings, ""); strings.Contains(got, "Job migrate is left out: it is a hook of Helm (pre-install,pre-upgrade)") == keep {
			t.Errorf("hooks %v: warnings %q", keep, got)
		}
	}
	if _, warnings, err := wrap.Works(manifests[1:], wrap.Config{Name: "web"}); err == nil || len(warnings) != 1 {
		t.Errorf("hooks only: %v, %v", err, warnings)
	}
}

// TestJSONValues: JSON values one after another are objects, as kubectl reads them.
func TestJSONValues(t *testing.T) {
	var text strings.Builder
	for _, name := range []string{"a", "b", "c"} {
		fmt.Fprintf(&text, `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": %q, "namespace": "shop"}}`+"\n", name)
	}
	manifests, err := wrap.Parse("f.json", []byte(text.String()))
	if err != nil || len(manifests) != 3 || manifests[2].Object.GetName() != "c" {
		t.Errorf("%v, %v", manifests, err)
	}
}

// TestIntegers: integers that a float64 cannot hold are written as they were read, also of items of a list, and of what was written.
func TestIntegers(t *testing.T) {
	const object = `{apiVersion: example.com/v1, kind: Monitor, metadata: {name: m, namespace: a}, spec: {id: 1152921504606846977, limit: 9223372036854775807}}`
	for _, text := range []string{object, "{apiVersion: v1, kind: List, items: [" + object + "]}"} {
		for _, format := range []string{"yaml", "json"} {
			for range 2 {
				manifests, err := wrap.Parse("f.yaml", []byte(text))
				kit.NoError(t, err)
				works, _, err := wrap.Works(manifests, wrap.Config{Name: "w", Cluster: "cluster1"})
				kit.NoError(t, err)
				var out strings.Builder
				kit.NoError(t, wrap.Write(&out, works, format))
				text = out.String()
				if !strings.Contains(text, "1152921504606846977") || !strings.Contains(text, "9223372036854775807") {
					t.Errorf("%s as %s: %s", object, format, text)
				}
			}
		}
	}
}

func TestNamespace(t *testing.T) {
	text := `{apiVersion: v1, kind: Pod, metadata: {name: p}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: r}}
---
{apiVersion: example.com/v1, kind: Unknown, metadata: {name: u}}
---
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: w}, spec: {group: example.com, scope: Namespaced, names: {kind: Widget}}}
---
{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}}
---
{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: other}}
---
{apiVersion: work.open-cluster-management.io/v1, kind: ManifestWork, metadata: {name: mw, namespace: c}}`
	manifests, err := wrap.Parse("f", []byte(text))
	kit.NoError(t, err)
	works, warnings, err := wrap.Works(manifests, wrap.Config{Name: "w", ObjectNamespace: "ns"})
	kit.NoError(t, err)
	var got []string
	for _, m := range works[0].Spec.Workload.Manifests {
		_, namespace, _ := strings.Cut(string(m.Raw), `"namespace":`)
		got = append(got, namespace)
	}
	if diff := cmp.Diff([]string{"", "", `"ns"}}`, `"other"}}`, "", `"ns"}}`, `"c"}}`}, got); diff != "" {
		t.Errorf("namespaces (-want +got):\n%s", diff)
	}
	if len(warnings) != 2 || !strings.Contains(warnings[0], "Unknown u has no namespace, and gets none") || !strings.Contains(warnings[1], "ManifestWork mw is wrapped") {
		t.Errorf("warnings %q", warnings)
	}
	if work := works[0]; work.Namespace != "" || work.Annotations != nil || work.Spec.ManifestConfigs != nil {
		t.Errorf("without feedback and readiness: %+v", work)
	}
}

// TestSplit checks that works keep to both limits, and together have everything in order.
func TestSplit(t *testing.T) {
	var text strings.Builder
	for i := range 100 {
		fmt.Fprintf(&text, "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: c%02d, namespace: a}, data: {k: %s}}\n", i, strings.Repeat("x", i*110))
	}
	manifests, err := wrap.Parse("f", []byte(text.String()))
	kit.NoError(t, err)
	for name, c := range map[string]struct {
		wrap.Config
		works int
	}{
		"by bytes": {wrap.Config{Name: "w", MaxBytes: 20_000}, 36},
		"by count": {wrap.Config{Name: "w", MaxManifests: 30}, 4},
		"default":  {wrap.Config{Name: "w"}, 2}, // 544,500 bytes and the names
	} {
		works, _, err := wrap.Works(manifests, c.Config)
		kit.NoError(t, err)
		next := 0
		for i, work := range works {
			if work.Name != fmt.Sprintf("w-%d", i+1) {
				t.Errorf("%s: the name %s", name, work.Name)
			}
			if err := wire.NewBundle(&work.Spec).Validate(); err != nil {
				t.Errorf("%s: an agent refuses %s: %v", name, work.Name, err)
			}
			size := 0
			for _, m := range work.Spec.Workload.Manifests {
				if size += len(m.Raw); !strings.Contains(string(m.Raw), fmt.Sprintf(`"c%02d"`, next)) {
					t.Errorf("%s: manifest %d is %.100s", name, next, m.Raw)
				}
				next++
			}
			if limit := c.MaxBytes; limit > 0 && size > limit || c.MaxManifests > 0 && len(work.Spec.Workload.Manifests) > c.MaxManifests {
				t.Errorf("%s: %s has %d bytes", name, work.Name, size)
			}
		}
		if next != 100 || len(works) != c.works {
			t.Errorf("%s: %d manifests in %d works, want %d", name, next, len(works), c.works)
		}
	}
}

// TestRead checks which files of a directory are read, and in which order.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		kit.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		kit.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	object := func(name string) string {
		return "{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {\"name\": \"" + name + "\"}}"
	}
	write("b.yml", object("b"))
	write("a.yaml", "\ufeff"+object("a")+"\r\n---\r\n"+object("a2"))
	write("c.json", object("c"))
	write("README.md", "text")
	write("sub/d.yaml", object("d"))
	write("kustomize/kustomization.yaml", "resources: []")
	names := func(recursive bool, paths ...string) []string {
		t.Helper()
		manifests, err := wrap.Read(paths, strings.NewReader(object("stdin")), recursive)
		kit.NoError(t, err)
		var names []string
		for _, m := range manifests {
			names = append(names, m.Object.GetName())
		}
		return names
	}
	if got := names(false, dir, "-"); !slices.Equal(got, []string{"a", "a2", "b", "c", "stdin"}) {
		t.Errorf("read %q", got)
	}
	if got := names(true, dir+"/sub", dir+"/b.yml"); !slices.Equal(got, []string{"d", "b"}) {
		t.Errorf("read %q", got)
	}
	write("sub/faulty.yaml", "kind: x")
	_, err := wrap.Read([]string{dir + "/none", dir + "/sub", dir + "/kustomize", "-"}, strings.NewReader("a"), false)
	for _, want := range []string{
		dir + "/none: no such file", dir + "/sub/faulty.yaml, document 1 (line 1): has no apiVersion",
		"kubectl kustomize DIR | workctl wrap -f -", "stdin, document 1 (line 1): is no object",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	kit.NoError(t, os.Mkdir(dir+"/empty", 0o700))
	if _, err := wrap.Read([]string{dir + "/empty"}, nil, false); err == nil || !strings.Contains(err.Error(), "has no file *.yaml") {
		t.Errorf("an empty directory: %v", err)
	}
}

// FuzzParse checks that whatever is parsed becomes works that an agent takes.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		app, "", "---", "...\n", "a: &a [*a]", "{}", "null", "kind: List\nitems:", "kind: List\nitems: [null]", "{apiVersion: a/b/c, kind: X, metadata: {name: n}}",
		"{apiVersion: v1, kind: PodList, items: 3, metadata: {name: n}}", "{apiVersion: v1, kind: Pod, metadata: {name: n, annotations: 3}}",
		"{apiVersion: v1, kind: X, metadata: {name: n}, a: 1e400}", "\ufeff---\r\nkind: A", "{apiVersion: v1, kind: X, metadata: {name: n, namespace: 1}}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		manifests, err := wrap.Parse("f", data)
		if err != nil || len(data) > 1<<16 {
			return
		}
		works, _, err := wrap.Works(manifests, wrap.Config{Name: "w", ObjectNamespace: "ns", MaxManifests: 2, Feedback: true})
		if err != nil {
			return
		}
		count := 0
		for _, work := range works {
			count += len(work.Spec.Workload.Manifests)
			if err := wire.NewBundle(&work.Spec).Validate(); err != nil {
				t.Errorf("an agent refuses %+v: %v", work.Spec, err)
			}
		}
		if count != len(manifests) {
			t.Errorf("%d of %d manifests", count, len(manifests))
		}
	})
}
