package strategy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

func TestWarnings(t *testing.T) {
	deployment := workv1.ManifestResourceMeta{Group: "apps", Version: "v1", Kind: "Deployment", Resource: "deployments", Namespace: "ns", Name: "web"}
	unknown := workv1.ManifestResourceMeta{Group: "example.com", Version: "v1", Kind: "Widget", Namespace: "ns", Name: "w"}
	unread := workv1.ManifestResourceMeta{}
	id := func(group, resource, namespace, name string) workv1.ResourceIdentifier {
		return workv1.ResourceIdentifier{Group: group, Resource: resource, Namespace: namespace, Name: name}
	}
	for name, c := range map[string]struct {
		id    workv1.ResourceIdentifier
		metas []workv1.ManifestResourceMeta
		want  []string
	}{
		"it matches":    {id("apps", "deployments", "ns", "web"), []workv1.ManifestResourceMeta{deployment}, nil},
		"by a pattern":  {id("apps", "deployments", "*", "w*"), []workv1.ManifestResourceMeta{deployment}, nil},
		"another name":  {id("apps", "deployments", "ns", "wbe"), []workv1.ManifestResourceMeta{deployment}, []string{"manifestConfigs[0] for deployments.apps ns/wbe matches no manifest"}},
		"another group": {id("", "deployments", "ns", "web"), []workv1.ManifestResourceMeta{deployment}, []string{"manifestConfigs[0] for deployments ns/web matches no manifest"}},
		"no namespace":  {id("apps", "deployments", "", "web"), []workv1.ManifestResourceMeta{deployment}, []string{"manifestConfigs[0] for deployments.apps web matches no manifest"}},
		"the kind": {id("apps", "Deployment", "ns", "web"), []workv1.ManifestResourceMeta{deployment},
			[]string{`manifestConfigs[0] for Deployment.apps ns/web matches no manifest; resource must be "deployments"`}},
		"for an unknown kind":    {id("example.com", "widgets", "ns", "w"), []workv1.ManifestResourceMeta{deployment, unknown}, nil},
		"beside an unknown kind": {id("apps", "deployments", "ns", "wbe"), []workv1.ManifestResourceMeta{unknown}, []string{"manifestConfigs[0] for deployments.apps ns/wbe matches no manifest"}},
		"beside an unread one":   {id("apps", "deployments", "ns", "wbe"), []workv1.ManifestResourceMeta{unread}, nil},
		"of no manifest":         {id("", "configmaps", "ns", "c"), nil, []string{"manifestConfigs[0] for configmaps ns/c matches no manifest"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &workv1.ManifestWorkSpec{ManifestConfigs: []workv1.ManifestConfigOption{{ResourceIdentifier: c.id}}}
			manifests := make([]strategy.Manifest, len(c.metas))
			for i, meta := range c.metas {
				manifests[i].Meta = meta
			}
			if diff := cmp.Diff(c.want, strategy.Warnings(spec, manifests)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDuplicateFields(t *testing.T) {
	for raw, want := range map[string][]string{
		`{"a":1,"b":{"a":1}}`: {},
		`{"a":1,"a":1}`:       {`duplicate field "a"`},
		`{"data":{"a":"1","a":"2"},"l":[{"x":1,"x":2}]}`: {`duplicate field "data.a"`, `duplicate field "l[0].x"`},
		`{"a":`: nil,
		``:      nil,
	} {
		manifest := &workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(raw)}}
		if diff := cmp.Diff(want, strategy.DuplicateFields(manifest)); diff != "" {
			t.Errorf("%s: %s", raw, diff)
		}
	}
}

func FuzzDuplicateFields(f *testing.F) {
	f.Add([]byte(`{"a":1,"a":1}`))
	f.Add([]byte(`{"a":[{"b":1,"b":[]}],"a":null}`))
	f.Add([]byte(`[1,`))
	f.Fuzz(func(_ *testing.T, raw []byte) {
		strategy.DuplicateFields(&workv1.Manifest{RawExtension: runtime.RawExtension{Raw: raw}})
	})
}
