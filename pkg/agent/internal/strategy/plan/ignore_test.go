package plan_test

import (
	"crypto/md5"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/ignore"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/plan"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/strategytest"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// sent gives the content of what is applied to an object that exists and that nobody has written
// yet.
func sent(t *testing.T, m *strategy.Manifest) string {
	t.Helper()
	live := strategytest.Decode(t, `{"apiVersion":"v1","kind":"X","metadata":{"name":"x"}}`)
	s := situation(live, nil)
	s.Complete = true
	step := plan.Next(m, s)
	wantVerb(t, step, plan.Apply)
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
		"a path":                        {strategytest.OnPresent(".a.x"), without(`"x":1,"y"`, `"y"`)},
		"a path of one part":            {strategytest.OnPresent(".f"), without(`"f":1.5,`, ``)},
		"every item":                    {strategytest.OnPresent(".l[*].v"), without(`,"v":1}`, `}`, `,"v":2}`, `}`)},
		"one item":                      {strategytest.OnPresent(`.l[?(@.n=="b")].v`), without(`,"v":2}`, `}`)},
		"an index, of no map":           {strategytest.OnPresent(".l[0]"), all},
		"a missing path":                {strategytest.OnPresent(".none.at.all", ".a.none"), all},
		"bad paths":                     {strategytest.OnPresent("a.x", ".a[.x", ".l[?(.v", ".a.x.y", "..", "", ".", "{.a}.x"), all},
		"no escapes":                    {strategytest.OnPresent(`.k\.dot`, `.k.dot.x`, `['k.dot']`), all},
		"everywhere":                    {strategytest.OnPresent("...x"), without(`"x":1,"y"`, `"y"`, `{"x":1}`, `{}`)},
		"nothing at all":                {strategytest.OnPresent(), all},
		"a pointer":                     {strategytest.Pointers("/a/x"), without(`"x":1,"y"`, `"y"`)},
		"a pointer to a key of dots":    {strategytest.Pointers("/k.dot/x"), without(`{"x":1},"l"`, `{},"l"`)},
		"a pointer with escapes":        {strategytest.Pointers("/~0~1"), without(`,"~/":1`, ``)},
		"a pointer to an item":          {strategytest.Pointers("/l/0"), without(`{"n":"a","v":1},`, ``)},
		"a pointer into an item":        {strategytest.Pointers("/l/1/v"), without(`,"v":2}`, `}`)},
		"missing pointers":              {strategytest.Pointers("/none", "/a/none/x", "/a/x/y", "/l/2", "/l/-", "/l/01", "/l/-1", "/l/x", "/l/x/v", "/", "/l/+1"), all},
		"an expression":                 {strategytest.Expressions(".a.x"), without(`"x":1,"y"`, `"y"`)},
		"an expression with select":     {strategytest.Expressions(`.l[] | select(.n == "b") | .v`), without(`,"v":2}`, `}`)},
		"an item by expression":         {strategytest.Expressions(`.l[] | select(.n == "a")`), without(`{"n":"a","v":1},`, ``)},
		"an expression with two paths":  {strategytest.Expressions(`.a.x, .f`), without(`"x":1,"y"`, `"y"`, `"f":1.5,`, ``)},
		"an expression with a variable": {strategytest.Expressions(`"v" as $k | .l[] | .[$k]`), without(`,"v":1}`, `}`, `,"v":2}`, `}`)},
		"an expression that is empty":   {strategytest.Expressions(`empty`), all},
		"one after the other": {
			workv1.IgnoreField{JSONPaths: []string{".a.x"}, JSONPointers: []string{"/l/0"}, JQPathExpressions: []string{".l[0].v"}},
			without(`"x":1,"y"`, `"y"`, `{"n":"a","v":1},`, ``, `,"v":2}`, `}`),
		},
		"under the other condition": {
			workv1.IgnoreField{Condition: workv1.IgnoreFieldsConditionOnSpokeChange, JSONPaths: []string{".a.x"}, JQPathExpressions: []string{".["}}, all,
		},
		"what names the object": {strategytest.Pointers("/metadata", "/kind", "/apiVersion"), all},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(canonical(t, test.want), sent(t, strategytest.Manifest(t, tree, strategytest.IgnoreFields(test.ignore)))); diff != "" {
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
		"pointer without a slash":  {[]workv1.IgnoreField{strategytest.Pointers("/a", "data/a")}, `JSON Pointer error in 'data/a': it must begin with "/"`},
		"pointer with bad escape":  {[]workv1.IgnoreField{strategytest.Pointers("/a~2")}, `JSON Pointer error in '/a~2': "~" must be followed by 0 or 1`},
		"pointer with open escape": {[]workv1.IgnoreField{strategytest.Pointers("/a~")}, `JSON Pointer error in '/a~': "~" must be followed by 0 or 1`},
		"pointer to everything":    {[]workv1.IgnoreField{strategytest.Pointers("")}, `JSON Pointer error in '': it names the whole manifest`},
		"expression with a fault":  {[]workv1.IgnoreField{strategytest.Expressions(".data", ".[")}, `JQ expression error in '.[': unexpected EOF`},
		"expression that breaks out": {
			[]workv1.IgnoreField{strategytest.Expressions(".data) | (.data")}, `JQ expression error in '.data) | (.data': unexpected token ")"`,
		},
		"unknown function":    {[]workv1.IgnoreField{strategytest.Expressions("nothing")}, `JQ expression error in 'nothing': function not defined: nothing/0`},
		"expression of all":   {[]workv1.IgnoreField{strategytest.Expressions(".")}, `JQ expression error in '.': it names the whole manifest`},
		"no expression":       {[]workv1.IgnoreField{strategytest.Expressions("")}, `JQ expression error in '': missing query`},
		"no path":             {[]workv1.IgnoreField{strategytest.Expressions(".data | keys")}, `JQ expression error in '.data | keys': invalid path`},
		"a value":             {[]workv1.IgnoreField{strategytest.Expressions(`"data"`)}, `JQ expression error in '"data"': invalid path`},
		"iterates over none":  {[]workv1.IgnoreField{strategytest.Expressions(".none[]")}, `JQ expression error in '.none[]': cannot iterate over: null`},
		"no environment":      {[]workv1.IgnoreField{strategytest.Expressions(`env.HOME`)}, `JQ expression error in 'env.HOME': env/0 is not available in ignoreFields`},
		"takes for ever":      {[]workv1.IgnoreField{strategytest.Expressions(`[..] | .data`)}, `JQ expression error in '[..] | .data': a list or object that is not constant is not available`},
		"other input":         {[]workv1.IgnoreField{strategytest.Expressions(`input | .data`)}, `JQ expression error in 'input | .data': input/0 is not available`},
		"files":               {[]workv1.IgnoreField{strategytest.Expressions(`import "/etc/passwd" as $p; .data`)}, `JQ expression error in 'import "/etc/passwd" as $p; .data': modules are not available`},
		"two of a kind":       {[]workv1.IgnoreField{strategytest.OnPresent(".a"), strategytest.OnChange(".b"), strategytest.OnPresent(".c")}, "ignoreFields has more than one entry with condition OnSpokePresent; put their fields into one"},
		"two of a kind again": {[]workv1.IgnoreField{strategytest.OnChange(), strategytest.OnChange()}, "ignoreFields has more than one entry with condition OnSpokeChange; put their fields into one"},
		"unset is one too":    {[]workv1.IgnoreField{strategytest.OnPresent(".a"), {}}, "ignoreFields has more than one entry with condition OnSpokePresent; put their fields into one"},
		"another condition":   {[]workv1.IgnoreField{{Condition: "Never"}}, `ignoreFields has condition "Never": it must be OnSpokePresent or OnSpokeChange`},
	} {
		t.Run(name, func(t *testing.T) {
			s := strategytest.Spec(strategytest.ConfigMap("c", `,"data":{"a":"1"}`), strategytest.ConfigMap("d", ""))
			strategytest.IgnoreFields(test.ignore...)(s)
			got := strategy.Parse(nil, s, strategytest.Mapping)[0]
			var typed *ignore.Error
			if !errors.As(got.Err, &typed) || !strings.HasPrefix(got.Err.Error(), test.want) {
				t.Errorf("got %T %q, want %q", got.Err, strategytest.ErrorText(got.Err), test.want)
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
			`{"kind":"ConfigMap","metadata":{"name":"c","namespace":"ns","labels":{"z":"1","a":"2"}},"data":{"k":"v"},"n":1000000,"f":1e21,"b":true,"l":[1,null],"apiVersion":"v1"}`, strategytest.OnChange(".data"),
			"&{map[apiVersion:v1 b:true data:map[k:v] f:1e+21 kind:ConfigMap l:[1 <nil>] metadata:map[labels:map[a:2 z:1] name:c namespace:ns] n:1000000]}",
		},
		"less what is ignored": {
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"ns"},"data":{"k":"v"}}`, strategytest.OnPresent(".data"),
			"&{map[apiVersion:v1 kind:ConfigMap metadata:map[name:c namespace:ns]]}",
		},
		"and null timestamps": {
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","namespace":"ns","creationTimestamp":null},"spec":{"template":{"metadata":{"creationTimestamp":null}}}}`, strategytest.OnPresent(),
			"&{map[apiVersion:apps/v1 kind:Deployment metadata:map[name:d namespace:ns] spec:map[template:map[metadata:map[]]]]}",
		},
		"by jq": {
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","namespace":"ns"},"spec":{"replicas":3,"paused":true,"big":9007199254740993,"f":0.5}}`, strategytest.Expressions(".spec.replicas"),
			"&{map[apiVersion:apps/v1 kind:Deployment metadata:map[name:d namespace:ns] spec:map[big:9007199254740993 f:0.5 paused:true]]}",
		},
		"a secret as it is written": {
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"ns"},"stringData":{"a":"1"}}`, strategytest.OnPresent(),
			"&{map[apiVersion:v1 kind:Secret metadata:map[name:s namespace:ns] stringData:map[a:1]]}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := strategytest.Manifest(t, test.manifest, strategytest.IgnoreFields(test.ignore))
			s := plan.State{Owner: owner, AgentHash: agentHash, Live: object.Live{State: object.Absent}}
			wantVerb(t, plan.Next(m, s), plan.Read)
			s.Complete = true
			step := plan.Next(m, s)
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
	step := plan.Next(m, plan.State{
		Owner: owner, AgentHash: agentHash, Live: object.Live{State: object.Absent}, Complete: true,
	})
	live := applied(t, m, text)
	live.SetAnnotations(step.Object.GetAnnotations())
	return live
}

func TestPlanIgnoring(t *testing.T) {
	first := strategytest.Manifest(t, strategytest.ConfigMap("c", `,"data":{"k":"v"}`), strategytest.IgnoreFields(strategytest.OnPresent(".data")))
	otherData := strategytest.Manifest(t, strategytest.ConfigMap("c", `,"data":{"k":"w"}`), strategytest.IgnoreFields(strategytest.OnPresent(".data")))
	otherFields := strategytest.Manifest(t, strategytest.ConfigMap("c", `,"data":{"k":"v"},"immutable":true`), strategytest.IgnoreFields(strategytest.OnPresent(".data")))
	changeFirst := strategytest.Manifest(t, strategytest.ConfigMap("c", `,"data":{"k":"v"}`), strategytest.IgnoreFields(strategytest.OnChange(".data")))
	changeOther := strategytest.Manifest(t, strategytest.ConfigMap("c", `,"data":{"k":"w"}`), strategytest.IgnoreFields(strategytest.OnChange(".data")))
	update := strategytest.Manifest(t, strategytest.ConfigMap("c", `,"data":{"k":"v"}`))
	orphaned := strategytest.Manifest(t, strategytest.ConfigMap("c", `,"data":{"k":"v"}`), strategytest.IgnoreFields(strategytest.OnPresent(".data")), strategytest.Orphan)
	serverSide := strategytest.Manifest(t, strategytest.ConfigMap("c", `,"data":{"k":"v"}`), strategytest.Configured(strategytest.ServerSide(nil)))
	joined := strategytest.Manifest(t, strategytest.ConfigMap("c", `,"l":["a b"]`), strategytest.IgnoreFields(strategytest.OnPresent(".data")))
	split := strategytest.Manifest(t, strategytest.ConfigMap("c", `,"l":["a","b"]`), strategytest.IgnoreFields(strategytest.OnPresent(".data")))
	byOther := *otherFields
	byOther.FieldManager = "other"
	drifted := func(m *strategy.Manifest) *unstructured.Unstructured {
		return hashed(t, m, `"data":{"k":"x"},"immutable":false`)
	}
	foreign := drifted(first)
	foreign.SetLabels(nil)
	for name, test := range map[string]struct {
		m        *strategy.Manifest
		live     *unstructured.Unstructured
		previous *strategy.Manifest
		digest   string
		complete bool
		want     plan.Verb
	}{
		"drift stays":                          {m: first, live: drifted(first), previous: first, want: plan.Keep},
		"drift stays after a restart":          {m: first, live: drifted(first), digest: digest(first), want: plan.Keep},
		"after one that recorded no values":    {m: first, live: drifted(first), digest: "A", want: plan.Keep},
		"and another manifest beside it":       {m: first, live: drifted(first), digest: "A,A1b2c3d4e", want: plan.Keep},
		"by an agent that records nothing":     {m: first, live: drifted(first), want: plan.Keep},
		"nothing but ignored fields changed":   {m: otherData, live: drifted(first), previous: first, want: plan.Keep},
		"others changed: it is read":           {m: otherFields, live: drifted(first), previous: first, want: plan.Read},
		"others changed":                       {m: otherFields, live: drifted(first), complete: true, want: plan.Apply},
		"others of the same hash changed":      {m: split, live: drifted(joined), previous: joined, want: plan.Read},
		"the same before a restart":            {m: split, live: drifted(joined), digest: digest(joined), want: plan.Read},
		"on change, drift stays":               {m: changeFirst, live: drifted(changeFirst), previous: changeFirst, want: plan.Keep},
		"on change, the manifest changed":      {m: changeOther, live: drifted(changeFirst), previous: changeFirst, want: plan.Apply},
		"by another agent: label only":         {m: first, live: foreign, want: plan.PatchMetadata},
		"orphaned: owner only":                 {m: orphaned, live: drifted(first), previous: first, want: plan.PatchMetadata},
		"another strategy meanwhile":           {m: first, live: drifted(first), previous: update, want: plan.Read},
		"all of it was applied before":         {m: first, live: drifted(first), previous: serverSide, want: plan.Read},
		"under another manager before":         {m: first, live: drifted(first), previous: &byOther, want: plan.Keep},
		"ignoreFields are new: it is all sent": {m: changeFirst, live: applied(t, changeFirst, ""), previous: changeFirst, complete: true, want: plan.Apply},
	} {
		t.Run(name, func(t *testing.T) {
			s := situation(test.live, test.previous)
			s.FieldsDigest, s.Complete = test.digest, test.complete
			before := test.live.DeepCopy()
			step := plan.Next(test.m, s)
			if step.Verb != test.want {
				t.Fatalf("got %s for %v", step.Verb, step.Differences)
			}
			if diff := cmp.Diff(before, test.live); diff != "" {
				t.Errorf("the live object was changed: %s", diff)
			}
			if test.want == plan.PatchMetadata && content(t, step.Object) != "" {
				t.Errorf("more than marks are set: %v", step.Object.Object)
			}
		})
	}
}

// At a change, ignored fields that nobody else has taken over stay in the body of the apply: the
// API server would remove them otherwise.
func TestPlanIgnoringKeeps(t *testing.T) {
	ours := func(set string) metav1.ManagedFieldsEntry { return strategytest.Applied("work-agent", set) }
	const deploymentBefore = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"ns","name":"d"},"spec":`
	for name, test := range map[string]struct {
		manifest string
		ignore   workv1.IgnoreField
		live     string
		managed  []metav1.ManagedFieldsEntry
		want     string
	}{
		"nobody has taken it": {
			deploymentBefore + `{"replicas":3,"paused":true}}`, strategytest.OnPresent(".spec.replicas"), `"spec":{"replicas":2,"paused":false,"other":1}`,
			[]metav1.ManagedFieldsEntry{ours(`{"f:spec":{"f:replicas":{},"f:paused":{}}}`)},
			`"spec":{"replicas":2,"paused":true}`,
		},
		"an autoscaler has taken it": {
			deploymentBefore + `{"replicas":3,"paused":true}}`, strategytest.OnPresent(".spec.replicas"), `"spec":{"replicas":9}`,
			[]metav1.ManagedFieldsEntry{ours(`{"f:spec":{"f:paused":{}}}`), strategytest.Updated("hpa", "scale", `{"f:spec":{"f:replicas":{}}}`)},
			`"spec":{"paused":true}`,
		},
		"it is shared": {
			deploymentBefore + `{"replicas":3,"paused":true}}`, strategytest.OnPresent(".spec.replicas"), `"spec":{"replicas":3}`,
			[]metav1.ManagedFieldsEntry{ours(`{"f:spec":{"f:replicas":{}}}`), strategytest.Applied("other", `{"f:spec":{"f:replicas":{}}}`)},
			`"spec":{"paused":true}`,
		},
		"we have updated it under the same name: it stays without us": {
			deploymentBefore + `{"replicas":3}}`, strategytest.OnPresent(".spec.replicas"), `"spec":{"replicas":3}`,
			[]metav1.ManagedFieldsEntry{ours(`{"f:spec":{"f:replicas":{}}}`), strategytest.Updated("work-agent", "scale", `{"f:spec":{"f:replicas":{}}}`)},
			`"spec":{}`,
		},
		"the manifest has it no more": {
			deploymentBefore + `{"paused":true}}`, strategytest.OnPresent(".spec.replicas"), `"spec":{"replicas":2}`,
			[]metav1.ManagedFieldsEntry{ours(`{"f:spec":{"f:replicas":{}}}`)}, `"spec":{"paused":true,"replicas":2}`,
		},
		"nor what is around it": {
			deploymentBefore + `{"paused":true}}`, strategytest.OnPresent(".spec.a.b"), `"spec":{"a":{"b":1,"c":1}}`,
			[]metav1.ManagedFieldsEntry{ours(`{"f:spec":{"f:a":{"f:b":{},"f:c":{}}}}`)}, `"spec":{"paused":true,"a":{"b":1}}`,
		},
		"a map, in part": {
			strategytest.ConfigMap("c", `,"data":{"a":"1","b":"1"},"immutable":false`), strategytest.OnPresent(".data"), `"data":{"a":"2","b":"2","c":"2","d":"2"}`,
			[]metav1.ManagedFieldsEntry{
				ours(`{"f:data":{".":{},"f:a":{},"f:c":{}}}`), strategytest.Updated("other", "", `{"f:data":{"f:b":{},"f:c":{}}}`),
			},
			`"data":{"a":"2"},"immutable":false`,
		},
		"a map of which nothing is left to us": {
			strategytest.ConfigMap("c", `,"data":{"a":"1"},"immutable":false`), strategytest.OnPresent(".data"), `"data":{"a":"2"}`,
			[]metav1.ManagedFieldsEntry{ours(`{"f:data":{}}`), strategytest.Updated("other", "", `{"f:data":{"f:a":{}}}`)},
			`"immutable":false`,
		},
		"fields of items": {
			deploymentBefore + `{"c":[{"name":"b","image":"y"},{"name":"a","image":"x"},{"name":"new","image":"z"}]}}`, strategytest.OnPresent(".spec.c[*].image"),
			`"spec":{"c":[{"name":"a","image":"a2","p":1},{"name":"gone","image":"g"},{"name":"b","image":"b2"},{"name":"theirs","image":"t"}]}`,
			[]metav1.ManagedFieldsEntry{
				ours(`{"f:spec":{"f:c":{"k:{\"name\":\"a\"}":{".":{},"f:name":{},"f:image":{}},"k:{\"name\":\"b\"}":{".":{},"f:name":{}},
					"k:{\"name\":\"gone\"}":{".":{},"f:name":{},"f:image":{}}}}}`),
				strategytest.Updated("other", "", `{"f:spec":{"f:c":{"k:{\"name\":\"b\"}":{"f:image":{}},"k:{\"name\":\"theirs\"}":{".":{},"f:name":{},"f:image":{}}}}}`),
			},
			`"spec":{"c":[{"name":"b"},{"name":"a","image":"a2"},{"name":"new"}]}`,
		},
		"items": {
			deploymentBefore + `{"c":[{"name":"a","image":"x"},{"name":"side","image":"s"}]}}`, strategytest.Expressions(`.spec.c[] | select(.name == "side")`),
			`"spec":{"c":[{"name":"side","image":"s2","default":1},{"name":"a","image":"x"}]}`,
			[]metav1.ManagedFieldsEntry{
				ours(`{"f:spec":{"f:c":{"k:{\"name\":\"a\"}":{".":{},"f:name":{}},"k:{\"name\":\"side\"}":{".":{},"f:image":{}}}}}`),
			},
			`"spec":{"c":[{"name":"a","image":"x"},{"name":"side","image":"s2"}]}`,
		},
		"items of a set": {
			deploymentBefore + `{"s":["a","b"]}}`, strategytest.Expressions(`.spec.s[] | select(. == "b" or . == "c")`), `"spec":{"s":["a","b","c"]}`,
			[]metav1.ManagedFieldsEntry{ours(`{"f:spec":{"f:s":{"v:\"a\"":{},"v:\"b\"":{}}}}`)}, `"spec":{"s":["a","b"]}`,
		},
		"an item with keys that have defaults": {
			deploymentBefore + `{"p":[{"port":80,"name":"x"}]}}`, strategytest.OnPresent(".spec.p[*].name"), `"spec":{"p":[{"port":80,"protocol":"TCP","name":"y"}]}`,
			[]metav1.ManagedFieldsEntry{ours(`{"f:spec":{"f:p":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{},"f:name":{}}}}}`)},
			`"spec":{"p":[{"port":80,"name":"y"}]}`,
		},
		"part of a list that is one value": {
			deploymentBefore + `{"args":["a","b"],"paused":true}}`, strategytest.Pointers("/spec/args/1"), `"spec":{"args":["a","c"]}`,
			[]metav1.ManagedFieldsEntry{ours(`{"f:spec":{"f:args":{}}}`)}, `"spec":{"args":["a","c"],"paused":true}`,
		},
		"a secret's plain text": {
			`{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"ns","name":"s"},"stringData":{"password":"new","user":"u"}}`, strategytest.OnPresent(".stringData.password"),
			`"data":{"password":"b2xk","user":"b2xk"}`,
			[]metav1.ManagedFieldsEntry{ours(`{"f:data":{"f:password":{},"f:user":{}}}`)},
			`"data":{"password":"b2xk","user":"dQ=="}`,
		},
		"nobody's": {
			deploymentBefore + `{"replicas":3}}`, strategytest.OnPresent(".spec.replicas"), `"spec":{"replicas":2}`, []metav1.ManagedFieldsEntry{ours(`{}`)}, `"spec":{}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := strategytest.Manifest(t, test.manifest, strategytest.IgnoreFields(test.ignore))
			live := applied(t, m, test.live)
			live.SetManagedFields(test.managed)
			s := situation(live, nil)
			s.Complete = true
			before := live.DeepCopy()
			step := plan.Next(m, s)
			wantVerb(t, step, plan.Apply)
			if diff := cmp.Diff(canonical(t, test.want), content(t, step.Object)); diff != "" {
				t.Error(diff)
			}
			if step.Object.GetUID() != live.GetUID() || step.Object.GetResourceVersion() != live.GetResourceVersion() {
				t.Errorf("the apply is not guarded: %v", step.Object.Object["metadata"])
			}
			if step.Object.GetLabels()[object.AgentLabel] != agentHash || step.Object.GetAnnotations()[workv1.ManifestConfigSpecHashAnnotationKey] != m.Ignored.Hash {
				t.Errorf("the apply is not marked: %v", step.Object.Object["metadata"])
			}
			if diff := cmp.Diff(before, live); diff != "" {
				t.Errorf("the live object was changed: %s", diff)
			}
		})
	}
	// Expressions that fail on the object only.
	m := strategytest.Manifest(t, strategytest.ConfigMap("c", `,"l":[1],"loop":false`), strategytest.IgnoreFields(strategytest.Expressions(".l[]")))
	s := situation(applied(t, m, `"l":null`), nil)
	s.Complete = true
	wantVerb(t, plan.Next(m, s), plan.Apply)
	m = strategytest.Manifest(t, strategytest.ConfigMap("c", `,"loop":false`), strategytest.IgnoreFields(strategytest.Expressions("if .loop then last("+strings.Repeat("(., .) | ", 30)+".) else .none end")))
	s.Live.Object = applied(t, m, `"loop":true`)
	var typed *ignore.Error
	if step := plan.Next(m, s); !errors.As(step.Err, &typed) || !strings.HasSuffix(step.Err.Error(), "it takes too many steps") {
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
		s := strategytest.Spec(text)
		entry := workv1.IgnoreField{JSONPaths: []string{path}, JSONPointers: []string{pointer}, JQPathExpressions: []string{expression}}
		strategytest.IgnoreFields(entry)(s)
		m := strategy.Parse(nil, s, strategytest.Mapping)[0]
		if m.Err != nil {
			var typed *ignore.Error
			if !errors.As(m.Err, &typed) {
				t.Errorf("got %T", m.Err)
			}
			return
		}
		live := strategytest.Decode(t, text)
		live.SetManagedFields([]metav1.ManagedFieldsEntry{strategytest.Applied("work-agent", `{"f:data":{"f:a":{}},"f:spec":{"f:c":{"k:{\"name\":\"a\"}":{"f:image":{}}}}}`)})
		situation := situation(live, nil)
		situation.Complete = true
		if step := plan.Next(&m, situation); step.Err != nil || step.Verb != plan.Apply || step.Object.GetName() != "c" {
			t.Errorf("got %s, %v", step.Verb, step.Err)
		}
	})
}
