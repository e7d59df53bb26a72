package render

import (
	"os"
	"strings"
	"testing"

	"github.com/workwire/workwire/pkg/ctl/wrap"
	"github.com/workwire/workwire/test/kit"
)

const (
	set = `
apiVersion: work.open-cluster-management.io/v1alpha1
kind: ManifestWorkReplicaSet
metadata: {name: a, namespace: shop, labels: {team: x}}
spec:
  placementRefs: [{name: p}]
  manifestWorkTemplate: {workload: {manifests: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: b}, data: {v: "1"}}]}}
---
`
	override = `
apiVersion: workwire.dev/v1alpha1
kind: WorkOverride
metadata: {name: o, namespace: shop}
spec:
  replicaSet: a
  rules:
    - patches:
        - target: {kind: ConfigMap}
          json:
            - {op: add, path: /data/c, configMap: {name: limits}}
            - {op: add, path: /data/s, secret: {name: passwords, key: "{cluster}.txt"}}
---
`
	values = `
{apiVersion: v1, kind: ConfigMap, metadata: {name: limits, namespace: shop}, data: {c1: "7", c2: "8"}}
---
{apiVersion: v1, kind: Secret, metadata: {name: passwords, namespace: shop}, data: {c1.txt: aGlkZGVu}, stringData: {c2.txt: plain}}
---
{apiVersion: v1, kind: Service, metadata: {name: other}}
---
`
	clusters = `
{apiVersion: cluster.open-cluster-management.io/v1, kind: ManagedCluster, metadata: {name: c2}}
---
{apiVersion: cluster.open-cluster-management.io/v1, kind: ManagedCluster, metadata: {name: c1}}
`
)

func parse(t *testing.T, files, clusters string) (*Input, error) {
	t.Helper()
	of, err := wrap.Parse("a.yaml", []byte(files))
	kit.NoError(t, err)
	from, err := wrap.Parse("clusters.yaml", []byte(clusters))
	kit.NoError(t, err)
	return Parse(of, from)
}

func TestWorks(t *testing.T) {
	input, err := parse(t, set+override+values, clusters)
	kit.NoError(t, err)
	works, err := input.Works("")
	kit.NoError(t, err)
	for i, want := range []string{`"data":{"c":"7","s":"hidden","v":"1"}`, `"data":{"c":"8","s":"plain","v":"1"}`} {
		work := works[i]
		if got := string(work.Spec.Workload.Manifests[0].Raw); !strings.Contains(got, want) || work.Namespace != []string{"c1", "c2"}[i] || work.Name != "a" || work.Labels["team"] != "x" {
			t.Errorf("%s/%s: %s", work.Namespace, work.Name, got)
		}
	}
	if works, err = input.Works("c2"); err != nil || len(works) != 1 || works[0].Namespace != "c2" {
		t.Errorf("%v, %v", works, err)
	}
	if _, err = input.Works("c3"); err == nil || !strings.Contains(err.Error(), "no ManagedCluster c3") {
		t.Errorf("%v", err)
	}
}

// TestFailing returns the works of other clusters.
func TestFailing(t *testing.T) {
	input, err := parse(t, set+override+strings.ReplaceAll(values, `, c2: "8"`, ""), clusters)
	kit.NoError(t, err)
	works, err := input.Works("")
	const want = "ManifestWorkReplicaSet a: cluster c2: WorkOverride o, rule 1: patch 1 of ConfigMap a, operation 1 (add /data/c): ConfigMap limits has no key c2"
	if err == nil || err.Error() != want || len(works) != 1 || works[0].Namespace != "c1" {
		t.Errorf("%v, %v", works, err)
	}
}

func TestParseErrors(t *testing.T) {
	for want, of := range map[string][2]string{
		"the files have no ManifestWorkReplicaSet":                   {values, clusters},
		"the clusters' file has no ManagedCluster":                   {set, values},
		"no ManifestWorkReplicaSet a in its namespace":               {strings.Replace(set, "namespace: shop", "namespace: other", 1) + override, clusters},
		`WorkOverride o: error unmarshaling JSON`:                    {set + strings.Replace(override, "path: /data/c", "pfad: /data/c", 1), clusters},
		"Secret passwords: data.c1.txt is no base64":                 {set + strings.Replace(values, "aGlkZGVu", "(hidden)", 1), clusters},
		"ConfigMap limits: its data must be texts":                   {set + strings.Replace(values, `"7"`, "7", 1), clusters},
		"clusters.yaml, document 1 (line 1): ManagedCluster c2: err": {set, strings.Replace(clusters, "{name: c2}}", "{name: c2}, spec: {hubAcceptsClient: 3}}", 1)},
	} {
		if _, err := parse(t, of[0], of[1]); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestExample renders the example of the documentation.
func TestExample(t *testing.T) {
	var files []wrap.Manifest
	for _, name := range []string{"set", "override"} {
		files = append(files, readExample(t, name)...)
	}
	input, err := Parse(files, readExample(t, "clusters"))
	kit.NoError(t, err)
	works, err := input.Works("")
	kit.NoError(t, err)
	for i, want := range [][]string{
		{`"data":{"currency":"EUR","region":"north","shop":"berlin"}`, `"replicas":4`}, {`"data":{"currency":"CHF","region":"none","shop":"zurich"}`, `"replicas":1`},
	} {
		for j, text := range want {
			if got := string(works[i].Spec.Workload.Manifests[j].Raw); !strings.Contains(got, text) {
				t.Errorf("%s: %s, want %s", works[i].Namespace, got, text)
			}
		}
	}
}

func readExample(t *testing.T, name string) []wrap.Manifest {
	t.Helper()
	text, err := os.ReadFile("../../../examples/overrides/" + name + ".yaml")
	kit.NoError(t, err)
	manifests, err := wrap.Parse(name, text)
	kit.NoError(t, err)
	return manifests
}
