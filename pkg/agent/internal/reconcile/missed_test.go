package reconcile

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

func TestMissed(t *testing.T) {
	ref := func(name string) object.Ref {
		return object.Ref{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespace: "ns", Name: name}
	}
	at := func(version string) *unstructured.Unstructured {
		live := &unstructured.Unstructured{Object: map[string]any{}}
		live.SetResourceVersion(version)
		return live
	}
	amw := &workv1.AppliedManifestWork{}
	amw.ResourceVersion = "12"
	rec := &reconciliation{
		subject:   subject{entry: &entry{name: "work"}},
		manifests: []strategy.Manifest{{Ref: ref("a")}, {Ref: ref("failed")}},
		outcomes:  []apply.Outcome{{Action: apply.Updated, Live: at("10")}, {Action: apply.Failed}},
		amw:       amw,
	}
	for name, c := range map[string]struct {
		events map[object.Ref]string
		want   bool
	}{
		"nothing":                                 {nil, false},
		"the echo of a write":                     {map[object.Ref]string{ref("a"): "10"}, false},
		"before the write":                        {map[object.Ref]string{ref("a"): "9"}, false},
		"after the write":                         {map[object.Ref]string{ref("a"): "11"}, true},
		"longer, so later":                        {map[object.Ref]string{ref("a"): "100"}, true},
		"of what failed":                          {map[object.Ref]string{ref("failed"): "9"}, true},
		"of what is no manifest":                  {map[object.Ref]string{ref("dropped"): "9"}, true},
		"of an API without order":                 {map[object.Ref]string{ref("a"): "x"}, true},
		"the echo of the AppliedManifestWork":     {map[object.Ref]string{appliedManifestWorkRef("work"): "12"}, false},
		"the AppliedManifestWork, by another":     {map[object.Ref]string{appliedManifestWorkRef("work"): "13"}, true},
		"the AppliedManifestWork of another name": {map[object.Ref]string{appliedManifestWorkRef("other"): "12"}, true},
		"an echo and what is not":                 {map[object.Ref]string{ref("a"): "10", appliedManifestWorkRef("work"): "13"}, true},
		"both echoes":                             {map[object.Ref]string{ref("a"): "10", appliedManifestWorkRef("work"): "12"}, false},
	} {
		if got := rec.missed(c.events); got != c.want {
			t.Errorf("%s: missed %v, want %v", name, got, c.want)
		}
	}
	rec.amw = nil
	if !rec.missed(map[object.Ref]string{appliedManifestWorkRef("work"): "12"}) {
		t.Error("an AppliedManifestWork that is not known is not missed")
	}
}
