package dryrun

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

func parsed(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	kit.NoError(t, yaml.Unmarshal([]byte(text), &obj.Object))
	return obj
}

func TestCompare(t *testing.T) {
	for name, test := range map[string]struct {
		before, after string
		want          []wire.DryRunField
	}{
		"status and what the API server writes": {
			"{kind: A, metadata: {name: a, uid: x, resourceVersion: '1', generation: 1, managedFields: []}, status: {a: 1}}",
			"{kind: A, metadata: {name: a, uid: x, resourceVersion: '2', generation: 2, managedFields: [{}]}, status: {a: 2}}", nil,
		},
		"a value, a new field, a field that goes": {
			"{kind: A, spec: {replicas: 1, old: {a: b}}}", "{kind: A, spec: {replicas: 3, new: [1]}}",
			[]wire.DryRunField{{Path: "spec.new", To: "[1]"}, {Path: "spec.old", From: `{"a":"b"}`}, {Path: "spec.replicas", From: "1", To: "3"}},
		},
		"items by name": {
			"{kind: A, spec: {containers: [{name: web, image: a}, {name: log, image: c}]}}", "{kind: A, spec: {containers: [{name: new}, {name: web, image: b}]}}",
			[]wire.DryRunField{
				{Path: "spec.containers[web].image", From: `"a"`, To: `"b"`}, {Path: "spec.containers[log]", From: `{"image":"c","name":"log"}`},
				{Path: "spec.containers[new]", To: `{"name":"new"}`},
			},
		},
		"items in another order": {
			"{kind: A, spec: {containers: [{name: a}, {name: b}, {name: c}]}}", "{kind: A, spec: {containers: [{name: new}, {name: b}, {name: a}]}}",
			[]wire.DryRunField{
				{Path: "spec.containers[c]", From: `{"name":"c"}`}, {Path: "spec.containers[new]", To: `{"name":"new"}`},
				{Path: "spec.containers (order)", From: `["a","b"]`, To: `["b","a"]`},
			},
		},
		"items by index, and lists of two lengths": {
			"{kind: A, a: [1, 2], b: [1]}", "{kind: A, a: [1, 3], b: [1, 2]}",
			[]wire.DryRunField{{Path: "a[1]", From: "2", To: "3"}, {Path: "b", From: "[1]", To: "[1,2]"}},
		},
		"null, and another type": {
			"{kind: A, a: null, b: {c: 1}}", "{kind: A, b: text}", []wire.DryRunField{{Path: "a", From: "null"}, {Path: "b", From: `{"c":1}`, To: `"text"`}},
		},
		"a key with dots": {
			"{kind: A, metadata: {labels: {a.b/c: x}}}", "{kind: A, metadata: {labels: {a.b/c: z}}}",
			[]wire.DryRunField{{Path: `metadata.labels["a.b/c"]`, From: `"x"`, To: `"z"`}},
		},
		"a Secret": {
			"{apiVersion: v1, kind: Secret, data: {password: b2xk}}", "{apiVersion: v1, kind: Secret, data: {password: bmV3, other: bmV3}}",
			[]wire.DryRunField{{Path: "data.other", To: hidden}, {Path: "data.password", From: hidden, To: hidden}},
		},
	} {
		got, omitted := compare(parsed(t, test.before), parsed(t, test.after))
		if diff := cmp.Diff(test.want, got); diff != "" || omitted != 0 {
			t.Errorf("%s: omitted %d (-want +got):\n%s", name, omitted, diff)
		}
	}
}

func TestCompareIsBounded(t *testing.T) {
	before, after := parsed(t, "{kind: A}"), parsed(t, "{kind: A}")
	data := map[string]any{strings.Repeat("é", 600): strings.Repeat("é", 600)}
	for i := range 150 {
		data[fmt.Sprint(i)] = "x"
	}
	after.Object["data"] = data
	before.Object["data"] = map[string]any{}
	fields, omitted := compare(before, after)
	if len(fields) != wire.MaxDryRunFields || omitted != 51 {
		t.Errorf("%d fields and %d more", len(fields), omitted)
	}
	before.Object["data"] = map[string]any{strings.Repeat("é", 600): "short"}
	after.Object["data"] = map[string]any{strings.Repeat("é", 600): strings.Repeat("é", 600)}
	fields, _ = compare(before, after)
	if len(fields) != 1 || len(fields[0].Path) > maxPath || len(fields[0].To) > maxValue || !strings.HasSuffix(fields[0].To, "é…") {
		t.Errorf("%+v", fields)
	}
}

func TestBounded(t *testing.T) {
	var objects []wire.DryRunObject
	for range 3000 {
		o := wire.DryRunObject{Kind: "ConfigMap", Name: "a", Result: wire.DryRunChanged, Message: strings.Repeat("m", 1000), Managers: []string{strings.Repeat("m", 500)}}
		for range wire.MaxDryRunFields {
			o.Fields = append(o.Fields, wire.DryRunField{Path: "a.b.c", From: strings.Repeat(`"`, maxValue), To: strings.Repeat(`"`, maxValue)})
		}
		objects = append(objects, o)
	}
	got := bounded(objects)
	event, err := wire.Encode(&wire.DryRunAnswer{ID: "a", Agent: "a", Cluster: "c1", Objects: got}, event0)
	kit.NoError(t, err)
	if n := len(event.Data()); len(got) != 3000 || n > 1<<20-10_000 || len(got[0].Fields) != wire.MaxDryRunFields || got[2999].OmittedFields != wire.MaxDryRunFields {
		t.Errorf("%d objects in %d bytes, the first with %d fields, the last without %d", len(got), n, len(got[0].Fields), got[2999].OmittedFields)
	}
}
