package strategy_test

import (
	"crypto/md5"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/agent/object"
	"github.com/workwire/workwire/pkg/agent/strategy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// ignoring sets ServerSideApply with ignoreFields for everything.
func ignoring(entries ...workv1.IgnoreField) func(*workv1.ManifestWorkSpec) {
	return func(s *workv1.ManifestWorkSpec) {
		for _, resource := range []string{"configmaps", "secrets", "deployments.apps"} {
			name, group, _ := strings.Cut(resource, ".")
			s.ManifestConfigs = append(s.ManifestConfigs, workv1.ManifestConfigOption{
				ResourceIdentifier: workv1.ResourceIdentifier{Group: group, Resource: name, Namespace: "*", Name: "*"},
				UpdateStrategy:     serverSide(&workv1.ServerSideApplyConfig{IgnoreFields: entries}),
			})
		}
	}
}

func onPresent(paths ...string) workv1.IgnoreField {
	return workv1.IgnoreField{Condition: workv1.IgnoreFieldsConditionOnSpokePresent, JSONPaths: paths}
}

func onChange(paths ...string) workv1.IgnoreField {
	return workv1.IgnoreField{Condition: workv1.IgnoreFieldsConditionOnSpokeChange, JSONPaths: paths}
}

func pointers(pointers ...string) workv1.IgnoreField {
	return workv1.IgnoreField{Condition: workv1.IgnoreFieldsConditionOnSpokePresent, JSONPointers: pointers}
}

func expressions(expressions ...string) workv1.IgnoreField {
	return workv1.IgnoreField{Condition: workv1.IgnoreFieldsConditionOnSpokePresent, JQPathExpressions: expressions}
}

// sent gives the content of what is applied to an object that exists and that
// nobody has written yet.
func sent(t *testing.T, m *strategy.Manifest) string {
	t.Helper()
	live := decode(t, `{"apiVersion":"v1","kind":"X","metadata":{"name":"x"}}`)
	s := situation(live, nil)
	s.Complete = true
	step := strategy.Plan(m, s)
	if step.Verb != strategy.Apply || step.Err != nil {
		t.Fatalf("got %s, %v", step.Verb, step.Err)
	}
	if step.Object.GetName() != m.Meta.Name || step.Object.GetNamespace() != m.Meta.Namespace || step.Object.GetKind() != m.Meta.Kind {
		t.Errorf("another object is sent: %v", step.Object.Object)
	}
	return content(t, step.Object)
}

func TestIgnoredFieldsAreNotSent(t *testing.T) {
	const tree = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"c"},
		"a":{"x":1,"y":2},"l":[{"n":"a","v":1},{"n":"b","v":2}],"k.dot":{"x":1},"~/":1,"f":1.5,"big":9007199254740993}`
	const all = `"a":{"x":1,"y":2},"big":9007199254740993,"f":1.5,"k.dot":{"x":1},"l":[{"n":"a","v":1},{"n":"b","v":2}],"~/":1`
	without := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(all) }
	for name, test := range map[string]struct {
		ignore workv1.IgnoreField
		want   string
	}{
		"a path":                       {onPresent(".a.x"), without(`"x":1,"y"`, `"y"`)},
		"a path of one part":           {onPresent(".f"), without(`"f":1.5,`, ``)},
		"every item":                   {onPresent(".l[*].v"), without(`,"v":1}`, `}`, `,"v":2}`, `}`)},
		"one item":                     {onPresent(`.l[?(@.n=="b")].v`), without(`,"v":2}`, `}`)},
		"an index, of no map":          {onPresent(".l[0]"), all},
		"a missing path":               {onPresent(".none.at.all", ".a.none"), all},
		"bad paths":                    {onPresent("a.x", ".a[.x", ".l[?(.v", ".a.x.y", "..", "", ".", "{.a}.x"), all},
		"no escapes":                   {onPresent(`.k\.dot`, `.k.dot.x`, `['k.dot']`), all},
		"everywhere":                   {onPresent("...x"), without(`"x":1,"y"`, `"y"`, `{"x":1}`, `{}`)},
		"nothing at all":               {onPresent(), all},
		"a pointer":                    {pointers("/a/x"), without(`"x":1,"y"`, `"y"`)},
		"a pointer to a key of dots":   {pointers("/k.dot/x"), without(`{"x":1},"l"`, `{},"l"`)},
		"a pointer with escapes":       {pointers("/~0~1"), without(`,"~/":1`, ``)},
		"a pointer to an item":         {pointers("/l/0"), without(`{"n":"a","v":1},`, ``)},
		"a pointer into an item":       {pointers("/l/1/v"), without(`,"v":2}`, `}`)},
		"missing pointers":             {pointers("/none", "/a/none/x", "/a/x/y", "/l/2", "/l/-", "/l/01", "/l/-1", "/l/x", "/l/x/v", "/", "/l/+1"), all},
		"an expression":                {expressions(".a.x"), without(`"x":1,"y"`, `"y"`)},
		"an expression with select":    {expressions(`.l[] | select(.n == "b") | .v`), without(`,"v":2}`, `}`)},
		"an item by expression":        {expressions(`.l[] | select(.n == "a")`), without(`{"n":"a","v":1},`, ``)},
		"an expression with two paths": {expressions(`.a.x, .f`), without(`"x":1,"y"`, `"y"`, `"f":1.5,`, ``)},
		"an expression of its own":     {expressions(`def v: .v; .l[] | v`), without(`,"v":1}`, `}`, `,"v":2}`, `}`)},
		"an expression that is empty":  {expressions(`empty`), all},
		"one after the other": {
			workv1.IgnoreField{JSONPaths: []string{".a.x"}, JSONPointers: []string{"/l/0"}, JQPathExpressions: []string{".l[0].v"}},
			without(`"x":1,"y"`, `"y"`, `{"n":"a","v":1},`, ``, `,"v":2}`, `}`),
		},
		"the environment is empty": {expressions(`if env == {} and $ENV == {} then .f else .a end`), without(`"f":1.5,`, ``)},
		"under the other condition": {
			workv1.IgnoreField{Condition: workv1.IgnoreFieldsConditionOnSpokeChange, JSONPaths: []string{".a.x"}, JQPathExpressions: []string{".["}}, all,
		},
		"what names the object": {pointers("/metadata", "/kind", "/apiVersion"), all},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(canonical(t, test.want), sent(t, manifest(t, tree, ignoring(test.ignore)))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestIgnoreFieldsErrors(t *testing.T) {
	for name, test := range map[string]struct {
		ignore []workv1.IgnoreField
		want   string // its beginning
	}{
		"pointer without a slash":  {[]workv1.IgnoreField{pointers("/a", "data/a")}, `JSON Pointer error in 'data/a': it must begin with "/"`},
		"pointer with bad escape":  {[]workv1.IgnoreField{pointers("/a~2")}, `JSON Pointer error in '/a~2': "~" must be followed by 0 or 1`},
		"pointer with open escape": {[]workv1.IgnoreField{pointers("/a~")}, `JSON Pointer error in '/a~': "~" must be followed by 0 or 1`},
		"pointer to everything":    {[]workv1.IgnoreField{pointers("")}, `JSON Pointer error in '': it names the whole manifest`},
		"expression with a fault":  {[]workv1.IgnoreField{expressions(".data", ".[")}, `JQ expression error in '.[': unexpected EOF`},
		"expression that breaks out": {
			[]workv1.IgnoreField{expressions(".data) | (.data")}, `JQ expression error in '.data) | (.data': unexpected token ")"`,
		},
		"unknown function":    {[]workv1.IgnoreField{expressions("nothing")}, `JQ expression error in 'nothing': function not defined: nothing/0`},
		"expression of all":   {[]workv1.IgnoreField{expressions(".")}, `JQ expression error in '.': it names the whole manifest`},
		"no expression":       {[]workv1.IgnoreField{expressions("")}, `JQ expression error in '': missing query`},
		"no path":             {[]workv1.IgnoreField{expressions(".data | keys")}, `JQ expression error in '.data | keys': invalid path`},
		"a value":             {[]workv1.IgnoreField{expressions(`"data"`)}, `JQ expression error in '"data"': invalid path`},
		"iterates over none":  {[]workv1.IgnoreField{expressions(".none[]")}, `JQ expression error in '.none[]': cannot iterate over: null`},
		"raises":              {[]workv1.IgnoreField{expressions(`error("x")`)}, `JQ expression error in 'error("x")': error: x`},
		"halts":               {[]workv1.IgnoreField{expressions(`halt`)}, `JQ expression error in 'halt': halt error`},
		"takes for ever":      {[]workv1.IgnoreField{expressions(`last(repeat(.)) | .data`)}, `JQ expression error in 'last(repeat(.)) | .data': it takes longer than 1s`},
		"other input":         {[]workv1.IgnoreField{expressions(`input | .data`)}, `JQ expression error in 'input | .data': `},
		"files":               {[]workv1.IgnoreField{expressions(`import "/etc/passwd" as $p; .data`)}, `JQ expression error in 'import "/etc/passwd" as $p; .data': modules are not available`},
		"two of a kind":       {[]workv1.IgnoreField{onPresent(".a"), onChange(".b"), onPresent(".c")}, "ignoreFields has more than one entry with condition OnSpokePresent; put their fields into one"},
		"two of a kind again": {[]workv1.IgnoreField{onChange(), onChange()}, "ignoreFields has more than one entry with condition OnSpokeChange; put their fields into one"},
		"unset is one too":    {[]workv1.IgnoreField{onPresent(".a"), {}}, "ignoreFields has more than one entry with condition OnSpokePresent; put their fields into one"},
		"another condition":   {[]workv1.IgnoreField{{Condition: "Never"}}, `ignoreFields has condition "Never": it must be OnSpokePresent or OnSpokeChange`},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec(configMap("c", `,"data":{"a":"1"}`), configMap("d", ""))
			ignoring(test.ignore...)(s)
			got := strategy.Parse(s, resolve)[0]
			var typed *strategy.IgnoreFieldsError
			if !errors.As(got.Err, &typed) || !strings.HasPrefix(got.Err.Error(), test.want) {
				t.Errorf("got %T %q, want %q", got.Err, errorText(got.Err), test.want)
			}
		})
	}
}

// The hash is the one that Go prints, as other agents compute it.
func TestSpecHash(t *testing.T) {
	md5of := func(text string) string {
		sum := md5.Sum([]byte(text))
		return hex.EncodeToString(sum[:])
	}
	for name, test := range map[string]struct {
		manifest string
		ignore   workv1.IgnoreField
		want     string
	}{
		"all of it": {
			`{"kind":"ConfigMap","metadata":{"name":"c","namespace":"ns","labels":{"z":"1","a":"2"}},"data":{"k":"v"},"n":1000000,"f":1e21,"b":true,"l":[1,null],"apiVersion":"v1"}`, onChange(".data"),
			"&{map[apiVersion:v1 b:true data:map[k:v] f:1e+21 kind:ConfigMap l:[1 <nil>] metadata:map[labels:map[a:2 z:1] name:c namespace:ns] n:1000000]}",
		},
		"less what is ignored": {
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"ns"},"data":{"k":"v"}}`, onPresent(".data"),
			"&{map[apiVersion:v1 kind:ConfigMap metadata:map[name:c namespace:ns]]}",
		},
		"and null timestamps": {
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","namespace":"ns","creationTimestamp":null},"spec":{"template":{"metadata":{"creationTimestamp":null}}}}`, onPresent(),
			"&{map[apiVersion:apps/v1 kind:Deployment metadata:map[name:d namespace:ns] spec:map[template:map[metadata:map[]]]]}",
		},
		"by jq": {
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","namespace":"ns"},"spec":{"replicas":3,"paused":true,"big":9007199254740993,"f":0.5}}`, expressions(".spec.replicas"),
			"&{map[apiVersion:apps/v1 kind:Deployment metadata:map[name:d namespace:ns] spec:map[big:9007199254740993 f:0.5 paused:true]]}",
		},
		"a secret as it is written": {
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"ns"},"stringData":{"a":"1"}}`, onPresent(),
			"&{map[apiVersion:v1 kind:Secret metadata:map[name:s namespace:ns] stringData:map[a:1]]}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := manifest(t, test.manifest, ignoring(test.ignore))
			s := strategy.Situation{Owner: owner, AgentHash: agentHash, FieldManager: "work-agent", Live: object.Live{State: object.Absent}}
			if step := strategy.Plan(m, s); step.Verb != strategy.Read {
				t.Fatalf("got %s", step.Verb)
			}
			s.Complete = true
			step := strategy.Plan(m, s)
			if got := step.Object.GetAnnotations()[workv1.ManifestConfigSpecHashAnnotationKey]; got != md5of(test.want) {
				t.Errorf("got %s, want %s", got, md5of(test.want))
			}
			// A new object has all fields.
			if diff := cmp.Diff(content(t, m.Desired), content(t, step.Object)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// hashed gives a live object as it is after m was applied with ignoreFields.
func hashed(t *testing.T, m *strategy.Manifest, text string) *unstructured.Unstructured {
	t.Helper()
	step := strategy.Plan(m, strategy.Situation{
		Owner: owner, AgentHash: agentHash, FieldManager: "work-agent", Live: object.Live{State: object.Absent}, Complete: true,
	})
	live := applied(t, m, text)
	live.SetAnnotations(step.Object.GetAnnotations())
	return live
}

func TestPlanIgnoring(t *testing.T) {
	first := manifest(t, configMap("c", `,"data":{"k":"v"}`), ignoring(onPresent(".data")))
	otherData := manifest(t, configMap("c", `,"data":{"k":"w"}`), ignoring(onPresent(".data")))
	otherFields := manifest(t, configMap("c", `,"data":{"k":"v"},"immutable":true`), ignoring(onPresent(".data")))
	changeFirst := manifest(t, configMap("c", `,"data":{"k":"v"}`), ignoring(onChange(".data")))
	changeOther := manifest(t, configMap("c", `,"data":{"k":"w"}`), ignoring(onChange(".data")))
	update := manifest(t, configMap("c", `,"data":{"k":"v"}`))
	orphaned := manifest(t, configMap("c", `,"data":{"k":"v"}`), ignoring(onPresent(".data")), orphan)
	drifted := func(m *strategy.Manifest) *unstructured.Unstructured {
		return hashed(t, m, `"data":{"k":"x"},"immutable":false`)
	}
	foreign := drifted(first)
	foreign.SetLabels(nil)
	for name, test := range map[string]struct {
		m        *strategy.Manifest
		live     *unstructured.Unstructured
		previous *strategy.Manifest
		complete bool
		want     strategy.Verb
	}{
		"drift stays":                          {m: first, live: drifted(first), previous: first, want: strategy.Keep},
		"drift stays after a restart":          {m: first, live: drifted(first), want: strategy.Keep},
		"nothing but ignored fields changed":   {m: otherData, live: drifted(first), previous: first, want: strategy.Keep},
		"others changed: it is read":           {m: otherFields, live: drifted(first), previous: first, want: strategy.Read},
		"others changed":                       {m: otherFields, live: drifted(first), complete: true, want: strategy.Apply},
		"on change, drift stays":               {m: changeFirst, live: drifted(changeFirst), previous: changeFirst, want: strategy.Keep},
		"on change, the manifest changed":      {m: changeOther, live: drifted(changeFirst), previous: changeFirst, want: strategy.Apply},
		"by another agent: label only":         {m: first, live: foreign, want: strategy.Mark},
		"orphaned: owner only":                 {m: orphaned, live: drifted(first), previous: first, want: strategy.Mark},
		"another strategy meanwhile":           {m: first, live: drifted(first), previous: update, want: strategy.Read},
		"ignoreFields are new: it is all sent": {m: changeFirst, live: applied(t, changeFirst, ""), previous: changeFirst, complete: true, want: strategy.Apply},
	} {
		t.Run(name, func(t *testing.T) {
			s := situation(test.live, test.previous)
			s.Complete = test.complete
			before := test.live.DeepCopy()
			step := strategy.Plan(test.m, s)
			if step.Verb != test.want {
				t.Fatalf("got %s for %v", step.Verb, step.Differences)
			}
			if diff := cmp.Diff(before, test.live); diff != "" {
				t.Errorf("the live object was changed: %s", diff)
			}
			if test.want == strategy.Mark && content(t, step.Object) != "" {
				t.Errorf("more than marks are set: %v", step.Object.Object)
			}
		})
	}
}

func appliedFields(manager, set string) metav1.ManagedFieldsEntry {
	entry := fields(manager, "", set)
	entry.Operation = metav1.ManagedFieldsOperationApply
	return entry
}

// At a change the ignored fields that nobody has taken stay in what is applied: left
// out, the API server would remove them.
func TestPlanIgnoringKeeps(t *testing.T) {
	ours := func(set string) metav1.ManagedFieldsEntry { return appliedFields("work-agent", set) }
	const deploymentBefore = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"ns","name":"d"},"spec":`
	for name, test := range map[string]struct {
		manifest string
		ignore   workv1.IgnoreField
		live     string
		managed  []metav1.ManagedFieldsEntry
		want     string
	}{
		"nobody has taken it": {
			deploymentBefore + `{"replicas":3,"paused":true}}`, onPresent(".spec.replicas"), `"spec":{"replicas":2,"paused":false,"other":1}`,
			[]metav1.ManagedFieldsEntry{ours(`{"f:spec":{"f:replicas":{},"f:paused":{}}}`)},
			`"spec":{"replicas":2,"paused":true}`,
		},
		"an autoscaler has taken it": {
			deploymentBefore + `{"replicas":3,"paused":true}}`, onPresent(".spec.replicas"), `"spec":{"replicas":9}`,
			[]metav1.ManagedFieldsEntry{ours(`{"f:spec":{"f:paused":{}}}`), fields("hpa", "scale", `{"f:spec":{"f:replicas":{}}}`)},
			`"spec":{"paused":true}`,
		},
		"it is shared": {
			deploymentBefore + `{"replicas":3,"paused":true}}`, onPresent(".spec.replicas"), `"spec":{"replicas":3}`,
			[]metav1.ManagedFieldsEntry{ours(`{"f:spec":{"f:replicas":{}}}`), appliedFields("other", `{"f:spec":{"f:replicas":{}}}`)},
			`"spec":{"paused":true}`,
		},
		"we have updated it under the same name: it stays without us": {
			deploymentBefore + `{"replicas":3}}`, onPresent(".spec.replicas"), `"spec":{"replicas":3}`,
			[]metav1.ManagedFieldsEntry{ours(`{"f:spec":{"f:replicas":{}}}`), fields("work-agent", "scale", `{"f:spec":{"f:replicas":{}}}`)},
			`"spec":{}`,
		},
		"the manifest has it no more": {
			deploymentBefore + `{"paused":true}}`, onPresent(".spec.replicas"), `"spec":{"replicas":2}`,
			[]metav1.ManagedFieldsEntry{ours(`{"f:spec":{"f:replicas":{}}}`)}, `"spec":{"paused":true,"replicas":2}`,
		},
		"nor what is around it": {
			deploymentBefore + `{"paused":true}}`, onPresent(".spec.a.b"), `"spec":{"a":{"b":1,"c":1}}`,
			[]metav1.ManagedFieldsEntry{ours(`{"f:spec":{"f:a":{"f:b":{},"f:c":{}}}}`)}, `"spec":{"paused":true,"a":{"b":1}}`,
		},
		"a map, in part": {
			configMap("c", `,"data":{"a":"1","b":"1"},"immutable":false`), onPresent(".data"), `"data":{"a":"2","b":"2","c":"2","d":"2"}`,
			[]metav1.ManagedFieldsEntry{
				ours(`{"f:data":{".":{},"f:a":{},"f:c":{}}}`), fields("other", "", `{"f:data":{"f:b":{},"f:c":{}}}`),
			},
			`"data":{"a":"2"},"immutable":false`,
		},
		"a map of which nothing is left to us": {
			configMap("c", `,"data":{"a":"1"},"immutable":false`), onPresent(".data"), `"data":{"a":"2"}`,
			[]metav1.ManagedFieldsEntry{ours(`{"f:data":{}}`), fields("other", "", `{"f:data":{"f:a":{}}}`)},
			`"immutable":false`,
		},
		"fields of items": {
			deploymentBefore + `{"c":[{"name":"b","image":"y"},{"name":"a","image":"x"},{"name":"new","image":"z"}]}}`, onPresent(".spec.c[*].image"),
			`"spec":{"c":[{"name":"a","image":"a2","p":1},{"name":"gone","image":"g"},{"name":"b","image":"b2"},{"name":"theirs","image":"t"}]}`,
			[]metav1.ManagedFieldsEntry{
				ours(`{"f:spec":{"f:c":{"k:{\"name\":\"a\"}":{".":{},"f:name":{},"f:image":{}},"k:{\"name\":\"b\"}":{".":{},"f:name":{}},
					"k:{\"name\":\"gone\"}":{".":{},"f:name":{},"f:image":{}}}}}`),
				fields("other", "", `{"f:spec":{"f:c":{"k:{\"name\":\"b\"}":{"f:image":{}},"k:{\"name\":\"theirs\"}":{".":{},"f:name":{},"f:image":{}}}}}`),
			},
			`"spec":{"c":[{"name":"b"},{"name":"a","image":"a2"},{"name":"new"}]}`,
		},
		"items": {
			deploymentBefore + `{"c":[{"name":"a","image":"x"},{"name":"side","image":"s"}]}}`, expressions(`.spec.c[] | select(.name == "side")`),
			`"spec":{"c":[{"name":"side","image":"s2","default":1},{"name":"a","image":"x"}]}`,
			[]metav1.ManagedFieldsEntry{
				ours(`{"f:spec":{"f:c":{"k:{\"name\":\"a\"}":{".":{},"f:name":{}},"k:{\"name\":\"side\"}":{".":{},"f:image":{}}}}}`),
			},
			`"spec":{"c":[{"name":"a","image":"x"},{"name":"side","image":"s2"}]}`,
		},
		"items of a set": {
			deploymentBefore + `{"s":["a","b"]}}`, expressions(`.spec.s[] | select(. == "b" or . == "c")`), `"spec":{"s":["a","b","c"]}`,
			[]metav1.ManagedFieldsEntry{ours(`{"f:spec":{"f:s":{"v:\"a\"":{},"v:\"b\"":{}}}}`)}, `"spec":{"s":["a","b"]}`,
		},
		"an item with keys that have defaults": {
			deploymentBefore + `{"p":[{"port":80,"name":"x"}]}}`, onPresent(".spec.p[*].name"), `"spec":{"p":[{"port":80,"protocol":"TCP","name":"y"}]}`,
			[]metav1.ManagedFieldsEntry{ours(`{"f:spec":{"f:p":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{},"f:name":{}}}}}`)},
			`"spec":{"p":[{"port":80,"name":"y"}]}`,
		},
		"part of a list that is one value": {
			deploymentBefore + `{"args":["a","b"],"paused":true}}`, pointers("/spec/args/1"), `"spec":{"args":["a","c"]}`,
			[]metav1.ManagedFieldsEntry{ours(`{"f:spec":{"f:args":{}}}`)}, `"spec":{"args":["a","c"],"paused":true}`,
		},
		"a secret's plain text": {
			`{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"ns","name":"s"},"stringData":{"password":"new","user":"u"}}`, onPresent(".stringData.password"),
			`"data":{"password":"b2xk","user":"b2xk"}`,
			[]metav1.ManagedFieldsEntry{ours(`{"f:data":{"f:password":{},"f:user":{}}}`)},
			`"data":{"password":"b2xk","user":"dQ=="}`,
		},
		"nobody's": {
			deploymentBefore + `{"replicas":3}}`, onPresent(".spec.replicas"), `"spec":{"replicas":2}`, []metav1.ManagedFieldsEntry{ours(`{}`)}, `"spec":{}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := manifest(t, test.manifest, ignoring(test.ignore))
			live := applied(t, m, test.live)
			live.SetManagedFields(test.managed)
			s := situation(live, nil)
			s.Complete = true
			before := live.DeepCopy()
			step := strategy.Plan(m, s)
			if step.Verb != strategy.Apply {
				t.Fatalf("got %s, %v", step.Verb, step.Err)
			}
			if diff := cmp.Diff(canonical(t, test.want), content(t, step.Object)); diff != "" {
				t.Error(diff)
			}
			if step.Object.GetUID() != live.GetUID() || step.Object.GetResourceVersion() != live.GetResourceVersion() {
				t.Errorf("the apply is not guarded: %v", step.Object.Object["metadata"])
			}
			if diff := cmp.Diff(before, live); diff != "" {
				t.Errorf("the live object was changed: %s", diff)
			}
		})
	}
	// Expressions that fail on the object only.
	m := manifest(t, configMap("c", `,"l":[1],"loop":false`), ignoring(expressions(".l[]")))
	s := situation(applied(t, m, `"l":null`), nil)
	s.Complete = true
	if step := strategy.Plan(m, s); step.Verb != strategy.Apply {
		t.Errorf("got %s, %v", step.Verb, step.Err)
	}
	m = manifest(t, configMap("c", `,"loop":false`), ignoring(expressions("if .loop then last(repeat(.)) else .none end")))
	s.Live.Object = applied(t, m, `"loop":true`)
	var typed *strategy.IgnoreFieldsError
	if step := strategy.Plan(m, s); !errors.As(step.Err, &typed) || !strings.HasSuffix(step.Err.Error(), "it takes longer than 1s") {
		t.Errorf("got %s, %v", step.Verb, step.Err)
	}
}

func FuzzIgnoreFields(f *testing.F) {
	for _, seed := range [][3]string{
		{".data", "/data", ".data"}, {".spec.c[*].image", "/spec/c/0/image", `.spec.c[] | select(.name == "a") | .image`},
		{"{.a", "~2", ".["}, {"..x", "/spec/c/-", "empty"}, {"", "", ""}, {".spec.c[?(@.name=='a')].image", "/~01", "error"}, {".spec.c[-1:].x", "//", "..|.x?"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	const text = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"c"},"data":{"a":"1"},"spec":{"c":[{"name":"a","image":"x"}],"n":5}}`
	f.Fuzz(func(t *testing.T, path, pointer, expression string) {
		if strings.ContainsAny(expression, "*") {
			t.Skip("a product of texts may be large")
		}
		s := spec(text)
		entry := workv1.IgnoreField{JSONPaths: []string{path}, JSONPointers: []string{pointer}, JQPathExpressions: []string{expression}}
		ignoring(entry)(s)
		m := strategy.Parse(s, resolve)[0]
		if m.Err != nil {
			var typed *strategy.IgnoreFieldsError
			if !errors.As(m.Err, &typed) {
				t.Errorf("got %T", m.Err)
			}
			return
		}
		live := decode(t, text)
		live.SetManagedFields([]metav1.ManagedFieldsEntry{appliedFields("work-agent", `{"f:data":{"f:a":{}},"f:spec":{"f:c":{"k:{\"name\":\"a\"}":{"f:image":{}}}}}`)})
		situation := situation(live, nil)
		situation.Complete = true
		if step := strategy.Plan(&m, situation); step.Err != nil || step.Verb != strategy.Apply || step.Object.GetName() != "c" {
			t.Errorf("got %s, %v", step.Verb, step.Err)
		}
	})
}
