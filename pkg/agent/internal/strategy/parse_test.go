package strategy_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/ownership"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/plan"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/strategytest"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

func TestParseManifests(t *testing.T) {
	for name, test := range map[string]struct {
		manifest string
		meta     workv1.ManifestResourceMeta
		ref      string
		err      string
	}{
		"namespaced": {
			manifest: strategytest.ConfigMap("c", ""),
			meta:     workv1.ManifestResourceMeta{Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Namespace: "ns", Name: "c"},
			ref:      "configmaps ns/c",
		},
		"cluster-scoped with a namespace": {
			manifest: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"namespace":"ns","name":"r"}}`,
			meta: workv1.ManifestResourceMeta{
				Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole", Resource: "clusterroles", Name: "r",
			},
			ref: "clusterroles.v1.rbac.authorization.k8s.io r",
		},
		"namespaced without a namespace": {
			manifest: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`,
			meta:     workv1.ManifestResourceMeta{Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Name: "c"},
			ref:      "configmaps c",
			err: "the server does not allow this method on the requested resource: ConfigMap has no metadata.namespace, " +
				"and no default applies; add it to the manifest",
		},
		"unknown kind": {
			manifest: `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"namespace":"ns","name":"w"}}`,
			meta:     workv1.ManifestResourceMeta{Group: "example.com", Version: "v1", Kind: "Widget", Namespace: "ns", Name: "w"},
			err:      `no matches for kind "Widget" in version "example.com/v1"`,
		},
		"a list":        {manifest: `[]`, err: "the manifest is not a JSON object; it needs apiVersion, kind and metadata.name"},
		"null":          {manifest: `null`, err: "the manifest is not a JSON object; it needs apiVersion, kind and metadata.name"},
		"empty":         {manifest: ``, err: "the manifest is not a JSON object; it needs apiVersion, kind and metadata.name"},
		"no kind":       {manifest: `{"apiVersion":"v1"}`, meta: workv1.ManifestResourceMeta{Version: "v1"}, err: "kind must be set in manifest"},
		"no apiVersion": {manifest: `{"kind":"ConfigMap"}`, meta: workv1.ManifestResourceMeta{Kind: "ConfigMap"}, err: "apiVersion must be set in manifest"},
		"no name": {
			manifest: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}`,
			meta:     workv1.ManifestResourceMeta{Version: "v1", Kind: "ConfigMap"}, err: "name must be set in manifest",
		},
		"generated name": {
			manifest: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"a-"}}`,
			meta:     workv1.ManifestResourceMeta{Version: "v1", Kind: "ConfigMap"}, err: "generateName must not be set in manifest",
		},
		"too deep": {
			manifest: strategytest.ConfigMap("c", `,"deep":`+strings.Repeat("[", 300)+strings.Repeat("]", 300)),
			meta:     workv1.ManifestResourceMeta{Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Namespace: "ns", Name: "c"},
			ref:      "configmaps ns/c",
			err:      "the manifest is nested deeper than 256 levels",
		},
		"contradicting secret": {
			manifest: `{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"ns","name":"s"},"data":{"a":"MQ=="},"stringData":{"a":"2"}}`,
			meta:     workv1.ManifestResourceMeta{Version: "v1", Kind: "Secret", Resource: "secrets", Namespace: "ns", Name: "s"},
			ref:      "secrets ns/s",
			err:      "data.a and stringData.a contradict each other",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := strategy.Parse(nil, strategytest.Spec(strategytest.ConfigMap("first", ""), test.manifest), strategytest.Mapping)[1]
			test.meta.Ordinal = 1
			if diff := cmp.Diff(test.meta, got.Meta); diff != "" {
				t.Error(diff)
			}
			if test.ref == "" && got.Ref != (object.Ref{}) || test.ref != "" && got.Ref.String() != test.ref {
				t.Errorf("ref %q, want %q", got.Ref, test.ref)
			}
			if message := strategytest.ErrorText(got.Err); message != test.err {
				t.Errorf("error %q, want %q", message, test.err)
			}
		})
	}
	unknown := strategy.Parse(nil, strategytest.Spec(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"}}`), strategytest.Mapping)[0]
	var kind *meta.NoKindMatchError
	if !errors.As(unknown.Err, &kind) || kind.GroupKind.Kind != "Widget" {
		t.Errorf("the error of an unknown kind is %#v", unknown.Err)
	}
}

// An apiVersion that cannot be one is not looked up: its parts become a path.
func TestParseInvalidAPIVersion(t *testing.T) {
	for _, apiVersion := range []string{
		"../metrics", "..", "apps/..", "apps/", "/", "./v1", "Apps/v1", "apps/v1?x=y", "a b/v1", "apps/v1/x", strings.Repeat("g", 254) + "/v1",
	} {
		manifest := fmt.Sprintf(`{"apiVersion":%q,"kind":"ConfigMap","metadata":{"namespace":"ns","name":"c"}}`, apiVersion)
		got := strategy.Parse(nil, strategytest.Spec(manifest), func(kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
			t.Errorf("%s is looked up as %s", apiVersion, kind)
			return strategytest.Mapping(kind)
		})[0]
		if !strings.HasPrefix(strategytest.ErrorText(got.Err), "apiVersion") {
			t.Errorf("error of %s is %v", apiVersion, got.Err)
		}
	}
}

func TestParseCleans(t *testing.T) {
	m := strategytest.Manifest(t, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"ns","name":"d","uid":"u","resourceVersion":"5",
		"creationTimestamp":null,"managedFields":[{}],"selfLink":"/x","options":{"fieldManager":"jenkins"},"finalizers":["a/b"]},
		"spec":{"replicas":3,"ratio":1.5,"template":{"metadata":{"creationTimestamp":null,"labels":{"a":"b"}}}}}`)
	want := map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"namespace": "ns", "name": "d", "resourceVersion": "5", "finalizers": []any{"a/b"}},
		"spec": map[string]any{
			"replicas": int64(3), "ratio": 1.5,
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}},
		},
	}
	if diff := cmp.Diff(want, m.Desired.Object); diff != "" {
		t.Error(diff)
	}
	if m.FieldManager != "jenkins" {
		t.Errorf("field manager %q", m.FieldManager)
	}
	secret := strategytest.Manifest(t, `{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"ns","name":"s"},"data":{"a":"MQ=="},"stringData":{"a":"1","b":"2"}}`)
	wantData := map[string]any{"a": "MQ==", "b": "Mg=="}
	if _, left := secret.Desired.Object["stringData"]; left || !reflect.DeepEqual(wantData, secret.Desired.Object["data"]) {
		t.Errorf("secret %v", secret.Desired.Object)
	}
}

func TestHash(t *testing.T) {
	base := strategytest.Manifest(t, strategytest.ConfigMap("c", `,"data":{"a":"1","b":"2"}`)).Hash
	if len(base) != 16 {
		t.Errorf("hash %q", base)
	}
	for text, same := range map[string]bool{
		`{"kind":"ConfigMap","apiVersion":"v1","data":{"b":"2","a":"1"},"metadata":{"name":"c","namespace":"ns","uid":"x"}}`: true,
		strategytest.ConfigMap("c", `,"data":{"a":"1","b":"3"}`):                                                             false,
	} {
		if got := strategytest.Manifest(t, text).Hash; (got == base) != same {
			t.Errorf("%s: hash %s, the other %s", text, got, base)
		}
	}
}

func TestFieldManager(t *testing.T) {
	named := func(manager string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"c","options":{"fieldManager":%q}}}`, manager)
	}
	for name, test := range map[string]struct {
		manifest string
		update   *workv1.UpdateStrategy
		want     string
		err      string
	}{
		"none":                         {manifest: strategytest.ConfigMap("c", "")},
		"of the manifest":              {manifest: named("jenkins"), want: "jenkins"},
		"of the strategy":              {manifest: strategytest.ConfigMap("c", ""), update: strategytest.ServerSide(&workv1.ServerSideApplyConfig{FieldManager: "work-agent-x"}), want: "work-agent-x"},
		"both alike":                   {manifest: named("work-agent-x"), update: strategytest.ServerSide(&workv1.ServerSideApplyConfig{FieldManager: "work-agent-x"}), want: "work-agent-x"},
		"the strategy has the default": {manifest: named("jenkins"), update: strategytest.ServerSide(&workv1.ServerSideApplyConfig{FieldManager: "work-agent"}), want: "jenkins"},
		"both, and they differ": {
			manifest: named("jenkins"), update: strategytest.ServerSide(&workv1.ServerSideApplyConfig{FieldManager: "work-agent-x"}), want: "jenkins",
			err: `metadata.options.fieldManager "jenkins" and serverSideApply.fieldManager "work-agent-x" differ; set one of them, or both alike`,
		},
		"128 characters": {manifest: named(strings.Repeat("ä", 128)), want: strings.Repeat("ä", 128)},
		"129 characters": {
			manifest: named(strings.Repeat("ä", 129)), err: "metadata.options.fieldManager has 129 characters; at most 128 are allowed",
		},
		"not printable": {manifest: named("a\tb"), err: `metadata.options.fieldManager "a\tb" has a character that is not printable`},
		"empty":         {manifest: named(""), err: "metadata.options.fieldManager must be a string that is not empty"},
		"options is no object": {
			manifest: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"c","options":1}}`,
			err:      "metadata.options must be an object",
		},
		"of no concern": {manifest: named("a\tb"), update: &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeReadOnly}},
	} {
		t.Run(name, func(t *testing.T) {
			s := strategytest.Spec(test.manifest)
			if test.update != nil {
				strategytest.Configured(test.update)(s)
			}
			got := strategy.Parse(nil, s, strategytest.Mapping)[0]
			if strategytest.ErrorText(got.Err) != test.err || test.err == "" && got.FieldManager != test.want {
				t.Errorf("got %q, error %q", got.FieldManager, strategytest.ErrorText(got.Err))
			}
			if strings.Contains(fmt.Sprint(got.Desired.Object), "options") {
				t.Errorf("the options are still there: %v", got.Desired.Object)
			}
		})
	}
}

func TestStrategies(t *testing.T) {
	for name, test := range map[string]struct {
		update *workv1.UpdateStrategy
		want   workv1.UpdateStrategyType
		err    string
	}{
		"none":    {want: workv1.UpdateStrategyTypeUpdate},
		"empty":   {update: &workv1.UpdateStrategy{}, want: workv1.UpdateStrategyTypeUpdate},
		"forced":  {update: strategytest.ServerSide(&workv1.ServerSideApplyConfig{Force: true}), want: workv1.UpdateStrategyTypeServerSideApply},
		"unknown": {update: &workv1.UpdateStrategy{Type: "Replace"}, want: "Replace", err: `unknown update strategy "Replace": it must be Update, CreateOnly, ServerSideApply or ReadOnly`},
		"force in the wrong place": {
			update: &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeServerSideApply, MisplacedForce: new(bool)},
			want:   workv1.UpdateStrategyTypeServerSideApply,
			err:    "updateStrategy.force is no field: force belongs to the options of server-side apply; move it to updateStrategy.serverSideApply.force",
		},
		"force in the wrong place, and of no concern": {
			update: &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeReadOnly, MisplacedForce: new(bool)},
			want:   workv1.UpdateStrategyTypeReadOnly,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := strategytest.Spec(strategytest.ConfigMap("c", ""))
			if test.update != nil {
				strategytest.Configured(test.update)(s)
			}
			got := strategy.Parse(nil, s, strategytest.Mapping)[0]
			if got.Strategy != test.want || strategytest.ErrorText(got.Err) != test.err || got.Force != (name == "forced") {
				t.Errorf("got %s, force %v, error %q", got.Strategy, got.Force, strategytest.ErrorText(got.Err))
			}
		})
	}
}

func TestMatching(t *testing.T) {
	for _, test := range []struct {
		pattern, text string
		want          bool
	}{
		{"a", "a", true}, {"a", "b", false}, {"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "abc", true},
		{"a*", "a", true}, {"a*", "ba", false}, {"*a", "ba", true}, {"*a", "ab", false}, {"a*b", "ab", true}, {"a*a", "a", false},
		{"a*b*c", "aXbYc", true}, {"a*b*c", "acb", false}, {"*b*", "abc", true}, {"*b*b*", "abc", false}, {"**", "", true},
		{"a.c", "abc", false}, {"*-[x]", "y-[x]", true}, {"a*b*b", "ab", false}, {"a?", "ab", false},
	} {
		s := strategytest.Spec(strategytest.ConfigMap("c", ""))
		s.Workload.Manifests[0].Raw = []byte(fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":%q}}`, "x"+test.text))
		s.ManifestConfigs = []workv1.ManifestConfigOption{{
			ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Namespace: "n*", Name: "x" + test.pattern},
			UpdateStrategy:     &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeCreateOnly},
		}}
		if got := strategy.Parse(nil, s, strategytest.Mapping)[0].Strategy == workv1.UpdateStrategyTypeCreateOnly; got != test.want {
			t.Errorf("%q matches %q: %v, want %v", test.pattern, test.text, got, test.want)
		}
	}
}

func TestMergedOptions(t *testing.T) {
	all := workv1.ResourceIdentifier{Resource: "configmaps", Namespace: "*", Name: "*"}
	feedback := func(name string) []workv1.FeedbackRule {
		return []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{{Name: name, Path: "." + name}}}}
	}
	s := strategytest.Spec(strategytest.ConfigMap("c", ""), `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n"}}`)
	s.ManifestConfigs = []workv1.ManifestConfigOption{
		{ResourceIdentifier: all},
		{ResourceIdentifier: workv1.ResourceIdentifier{Resource: "secrets", Namespace: "*", Name: "*"}, FeedbackRules: feedback("other")},
		{ResourceIdentifier: workv1.ResourceIdentifier{Group: "apps", Resource: "configmaps", Namespace: "*", Name: "*"}, FeedbackRules: feedback("group")},
		{ResourceIdentifier: all, FeedbackRules: feedback("first"), FeedbackScrapeType: workv1.FeedbackScrapeTypeWatch},
		{ResourceIdentifier: all, FeedbackRules: feedback("second"), ConditionRules: []workv1.ConditionRule{{Condition: "C"}}},
		{ResourceIdentifier: all, UpdateStrategy: &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeReadOnly}, FeedbackScrapeType: workv1.FeedbackScrapeTypePoll},
		{ResourceIdentifier: all, UpdateStrategy: &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeCreateOnly}},
		{ResourceIdentifier: workv1.ResourceIdentifier{Resource: "namespaces", Namespace: "*", Name: "n"}, FeedbackRules: feedback("cluster")},
	}
	parsed := strategy.Parse(nil, s, strategytest.Mapping)
	got := parsed[0]
	if got.Strategy != workv1.UpdateStrategyTypeReadOnly || got.FeedbackScrapeType != workv1.FeedbackScrapeTypeWatch {
		t.Errorf("strategy %s, scrape type %s", got.Strategy, got.FeedbackScrapeType)
	}
	if diff := cmp.Diff(feedback("first"), got.FeedbackRules); diff != "" {
		t.Error(diff)
	}
	if len(got.ConditionRules) != 1 {
		t.Errorf("condition rules %v", got.ConditionRules)
	}
	if diff := cmp.Diff(feedback("cluster"), parsed[1].FeedbackRules); diff != "" {
		t.Errorf("a * must match the empty namespace: %s", diff)
	}
}

func TestOwned(t *testing.T) {
	rule := workv1.OrphaningRule{Resource: "configmaps", Namespace: "ns", Name: "c"}
	other := workv1.OrphaningRule{Resource: "configmaps", Namespace: "*", Name: "*"}
	kind := workv1.OrphaningRule{Resource: "ConfigMap", Namespace: "ns", Name: "c"}
	selective := func(rules ...workv1.OrphaningRule) *workv1.DeleteOption {
		return &workv1.DeleteOption{
			PropagationPolicy: workv1.DeletePropagationPolicyTypeSelectivelyOrphan,
			SelectivelyOrphan: &workv1.SelectivelyOrphan{OrphaningRules: rules},
		}
	}
	for name, test := range map[string]struct {
		option *workv1.DeleteOption
		want   bool
	}{
		"unset":             {want: true},
		"empty":             {option: &workv1.DeleteOption{}, want: true},
		"foreground":        {option: &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeForeground}, want: true},
		"orphan":            {option: &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}},
		"without rules":     {option: &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeSelectivelyOrphan}, want: true},
		"a rule":            {option: selective(other, rule)},
		"no wildcards":      {option: selective(other), want: true},
		"the kind for once": {option: selective(kind)},
	} {
		t.Run(name, func(t *testing.T) {
			s := strategytest.Spec(strategytest.ConfigMap("c", ""))
			s.DeleteOption = test.option
			if got := strategy.Parse(nil, s, strategytest.Mapping)[0].Owned; got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestDuplicates(t *testing.T) {
	applier := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"c","options":{"fieldManager":%q}},"data":{%q:"1"}}`
	for name, test := range map[string]struct {
		manifests []string
		update    *workv1.UpdateStrategy
		want      []string
	}{
		"the last wins": {
			manifests: []string{strategytest.ConfigMap("c", `,"data":{"a":"1"}`), strategytest.ConfigMap("d", ""), strategytest.ConfigMap("c", `,"data":{"a":"2"}`)},
			want:      []string{"duplicate manifest for resource ns/c with resource type v1.ConfigMap: manifest 2 of the work is applied instead", "", ""},
		},
		"alike": {manifests: []string{strategytest.ConfigMap("c", ""), strategytest.ConfigMap("c", "")}, want: []string{"", ""}},
		"server-side appliers share": {
			manifests: []string{fmt.Sprintf(applier, "one", "a"), fmt.Sprintf(applier, "two", "b")}, update: strategytest.ServerSide(nil), want: []string{"", ""},
		},
		"server-side appliers with the default manager do not": {
			manifests: []string{fmt.Sprintf(applier, workv1.DefaultFieldManager, "a"), strategytest.ConfigMap("c", `,"data":{"b":"1"}`)}, update: strategytest.ServerSide(nil),
			want: []string{"duplicate manifest for resource ns/c with resource type v1.ConfigMap: manifest 1 of the work is applied instead", ""},
		},
		"updaters do not": {
			manifests: []string{fmt.Sprintf(applier, "one", "a"), fmt.Sprintf(applier, "two", "b")},
			want:      []string{"duplicate manifest for resource ns/c with resource type v1.ConfigMap: manifest 1 of the work is applied instead", ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := strategytest.Spec(test.manifests...)
			if test.update != nil {
				strategytest.Configured(test.update)(s)
			}
			for i, m := range strategy.Parse(nil, s, strategytest.Mapping) {
				if strategytest.ErrorText(m.Err) != test.want[i] {
					t.Errorf("manifest %d: error %q, want %q", i, strategytest.ErrorText(m.Err), test.want[i])
				}
			}
		})
	}
}

func TestRanks(t *testing.T) {
	of := func(kind string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":%q,"metadata":{"namespace":"ns","name":"x"}}`, kind)
	}
	manifests := strategy.Parse(nil, strategytest.Spec(of("Widget"), of("Deployment"), of("ConfigMap"), of("Namespace"), of("ValidatingWebhookConfiguration"),
		of("Secret"), of("ClusterRole"), of("Service"), of("ServiceAccount"), `[]`, of("Job")), strategytest.Mapping)
	want := [][]int{{3}, {6}, {8}, {2, 5}, {7}, {1, 10}, {4}, {0, 9}}
	if diff := cmp.Diff(want, strategy.Ranks(manifests)); diff != "" {
		t.Error(diff)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[]`, `null`, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"ns"}}`,
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"c"},"stringData":{"a":"b"},"data":null}`,
		`{"apiVersion":1,"kind":{},"metadata":[]}`, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","options":{"fieldManager":"x"}}}`,
		`{"apiVersion":"a/b/c","kind":"ConfigMap","metadata":{"name":"c"}}`, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"c","namespace":5}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m := strategy.Parse(nil, strategytest.Spec(string(raw)), strategytest.Mapping)[0]
		if m.Err == nil && (m.Desired == nil || m.Ref.Resource == "" || m.Ref.Name == "" || m.Hash == "") {
			t.Errorf("a manifest without fault lacks something: %+v", m)
		}
		if m.Err == nil {
			step := plan.Next(&m, plan.State{Owner: ownership.Reference("hub-work", "owner-uid"), AgentHash: "0123456789abcdef"})
			if step.Verb != plan.Create && m.Desired.GetResourceVersion() == "" {
				t.Errorf("a new object leads to %s", step.Verb)
			}
		}
	})
}
