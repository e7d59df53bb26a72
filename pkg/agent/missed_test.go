package agent

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/object"
	"github.com/workwire/workwire/pkg/agent/strategy"
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
	record := &workv1.AppliedManifestWork{}
	record.ResourceVersion = "12"
	u := &under{
		name:      "work",
		manifests: []strategy.Manifest{{Ref: ref("a")}, {Ref: ref("failed")}},
		outcomes:  []strategy.Outcome{{Action: strategy.Updated, Live: at("10")}, {Action: strategy.Failed}},
		record:    record,
	}
	for name, c := range map[string]struct {
		news map[object.Ref]string
		want bool
	}{
		"nothing":                         {nil, false},
		"the echo of a write":             {map[object.Ref]string{ref("a"): "10"}, false},
		"before the write":                {map[object.Ref]string{ref("a"): "9"}, false},
		"after the write":                 {map[object.Ref]string{ref("a"): "11"}, true},
		"longer, so later":                {map[object.Ref]string{ref("a"): "100"}, true},
		"of what failed":                  {map[object.Ref]string{ref("failed"): "9"}, true},
		"of what is no manifest":          {map[object.Ref]string{ref("dropped"): "9"}, true},
		"of an API without order":         {map[object.Ref]string{ref("a"): "x"}, true},
		"the echo of the record":          {map[object.Ref]string{recordRef("work"): "12"}, false},
		"the record, by another":          {map[object.Ref]string{recordRef("work"): "13"}, true},
		"the record of an other name":     {map[object.Ref]string{recordRef("other"): "12"}, true},
		"an echo and what is not":         {map[object.Ref]string{ref("a"): "10", recordRef("work"): "13"}, true},
		"the echoes of object and record": {map[object.Ref]string{ref("a"): "10", recordRef("work"): "12"}, false},
	} {
		if got := u.missed(c.news); got != c.want {
			t.Errorf("%s: missed %v, want %v", name, got, c.want)
		}
	}
	u.record = nil
	if !u.missed(map[object.Ref]string{recordRef("work"): "12"}) {
		t.Error("a record that is not known is not missed")
	}
}

func TestNewsIsHeldWhileAPassIsUnderWay(t *testing.T) {
	n, ref := newNews(), recordRef("x")
	if n.hold("a", ref, "1") {
		t.Error("held before the pass")
	}
	n.begin("a")
	if !n.hold("a", ref, "9") || !n.hold("a", ref, "10") || !n.hold("a", ref, "8") || n.hold("b", ref, "1") {
		t.Error("not held, or for the wrong work")
	}
	if got := n.end("a"); len(got) != 1 || got[ref] != "10" {
		t.Errorf("held %v, want the newest", got)
	}
	if n.hold("a", ref, "11") {
		t.Error("held after the pass")
	}
}
