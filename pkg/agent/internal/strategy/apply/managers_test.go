package apply_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/strategytest"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// Every write of every strategy has the manifest's own field manager. The manifest is the
// proposal's own example.
func TestFieldManagerOfEveryWrite(t *testing.T) {
	const example = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"NS","name":"example","options":{"fieldManager":"jenkins"}MORE},"data":DATA}`
	text := func(data string, more ...string) string {
		return strings.NewReplacer("DATA", data, "MORE", strings.Join(more, "")).Replace(example)
	}
	of := func(kind workv1.UpdateStrategyType) func(*workv1.ManifestWorkSpec) {
		return strategytest.Configured(&workv1.UpdateStrategy{Type: kind})
	}
	orphaned := func(change func(*workv1.ManifestWorkSpec)) func(*workv1.ManifestWorkSpec) {
		return func(w *workv1.ManifestWorkSpec) { change(w); strategytest.Orphan(w) }
	}
	update, createOnly, apply := of(workv1.UpdateStrategyTypeUpdate), of(workv1.UpdateStrategyTypeCreateOnly), of(workv1.UpdateStrategyTypeServerSideApply)
	ignore := strategytest.IgnoreFields(strategytest.OnPresent(".data"))
	type write struct {
		change func(*workv1.ManifestWorkSpec)
		text   string
	}
	v := text(`{"k":"v"}`)
	for name, test := range map[string]struct {
		foreign bool // the object is there, made by another actor
		drift   bool // another actor changes it before the last write
		writes  []write
		want    string // managers, and operations, without the other actor
	}{
		"Update: create":                {writes: []write{{update, v}}, want: "jenkins Update"},
		"Update: change":                {writes: []write{{update, v}, {update, text(`{"k":"w"}`)}}, want: "jenkins Update"},
		"Update: drift":                 {drift: true, writes: []write{{update, v}, {update, v}}, want: "jenkins Update"},
		"Update: adopt":                 {foreign: true, writes: []write{{update, v}}, want: "jenkins Update"},
		"Update: owner off and on":      {writes: []write{{orphaned(update), v}, {update, v}, {orphaned(update), v}, {update, v}}, want: "jenkins Update"},
		"Update: recreate":              {writes: []write{{update, text(`{"k":"v"}`, allowRecreation)}, {update, text(`{"k":"w"},"immutable":true`, allowRecreation)}, {update, text(`{"k":"x"},"immutable":true`, allowRecreation)}}, want: "jenkins Update"},
		"CreateOnly: create":            {writes: []write{{createOnly, v}}, want: "jenkins Update"},
		"CreateOnly: adopt":             {foreign: true, writes: []write{{createOnly, v}}, want: "jenkins Update"},
		"CreateOnly: owner off and on":  {writes: []write{{orphaned(createOnly), v}, {createOnly, v}}, want: "jenkins Update"},
		"apply: create":                 {writes: []write{{apply, v}}, want: "jenkins Apply"},
		"apply: change":                 {writes: []write{{apply, v}, {apply, text(`{"k":"w"}`)}}, want: "jenkins Apply"},
		"apply: drift":                  {drift: true, writes: []write{{apply, v}, {strategytest.Configured(strategytest.ServerSide(&workv1.ServerSideApplyConfig{Force: true})), v}}, want: "jenkins Apply"},
		"apply: adopt":                  {foreign: true, writes: []write{{apply, v}}, want: "jenkins Apply"},
		"apply: owner off and on":       {writes: []write{{orphaned(apply), v}, {apply, v}, {orphaned(apply), v}}, want: "jenkins Apply"},
		"apply after an update":         {writes: []write{{update, v}, {apply, text(`{"k":"w"}`)}}, want: "jenkins Apply"},
		"ignoreFields: create":          {writes: []write{{ignore, v}}, want: "jenkins Apply"},
		"ignoreFields: change":          {writes: []write{{ignore, v}, {ignore, text(`{"k":"v"}`, `,"labels":{"a":"b"}`)}}, want: "jenkins Apply"},
		"ignoreFields: owner off":       {writes: []write{{ignore, v}, {orphaned(ignore), v}}, want: "jenkins Apply"},
		"ignoreFields: owner on":        {writes: []write{{orphaned(ignore), v}, {ignore, v}}, want: "jenkins Apply, jenkins Update"},
		"ignoreFields: adopt":           {foreign: true, writes: []write{{ignore, v}}, want: "jenkins Apply"},
		"ReadOnly: none":                {foreign: true, writes: []write{{of(workv1.UpdateStrategyTypeReadOnly), v}}, want: ""},
		"apply by the strategy's":       {writes: []write{{applyConfig("work-agent-x", false), data(`{"k":"v"}`)}}, want: "work-agent-x Apply"},
		"update by nobody's but ours":   {writes: []write{{update, data(`{"k":"v"}`)}}, want: "work-agent Update"},
		"apply, both say the same":      {writes: []write{{applyConfig("jenkins", false), v}}, want: "jenkins Apply"},
		"the strategy's for apply only": {writes: []write{{strategytest.Configured(&workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeUpdate, ServerSideApply: &workv1.ServerSideApplyConfig{FieldManager: "work-agent-x"}}), data(`{"k":"v"}`)}}, want: "work-agent Update"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpoke(t)
			var ref object.Ref
			for i, write := range test.writes {
				manifests := s.parse(write.change, write.text)
				ref = manifests[0].Ref
				if test.foreign {
					foreign := strategytest.Decode(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"`+ref.Name+`"},"data":{"theirs":"x"}}`)
					if _, err := s.resource(ref).Create(t.Context(), foreign, metav1.CreateOptions{FieldManager: "other"}); err != nil {
						t.Fatal(err)
					}
				}
				if test.drift && i == len(test.writes)-1 {
					s.patch(ref, "other", `{"data":{"k":"drift"}}`)
				}
				outcome := s.apply(manifests)[0]
				if outcome.Err != nil {
					t.Fatalf("write %d: %v", i, outcome.Err)
				}
				if readOnly := manifests[0].Strategy == workv1.UpdateStrategyTypeReadOnly; (outcome.Requests == 0) != readOnly {
					t.Fatalf("write %d: %d requests", i, outcome.Requests)
				}
			}
			live := s.get(ref)
			var ours []string
			for _, manager := range strings.Split(managers(live), ", ") {
				if !strings.HasPrefix(manager, "other ") {
					ours = append(ours, manager)
				}
			}
			if got := strings.Join(ours, ", "); got != test.want {
				t.Errorf("managers %q, want %q", got, test.want)
			}
			if nested(t, live, "metadata", "options") != nil {
				t.Error("the options were sent")
			}
		})
	}
}

// A removal has no manifest: it is the agent's.
func TestFieldManagerOfRemoval(t *testing.T) {
	s := newSpoke(t)
	_, entry := s.configMap("")
	s.share(entry.Ref)
	s.remove(entry)
	if got := managers(s.get(entry.Ref)); got != "other Update, work-agent Update" {
		t.Errorf("managers %s", got)
	}
}

// When somebody contests an object it is read before it is repaired, and those who changed it are
// named.
func TestDetectConflicts(t *testing.T) {
	s := newSpoke(t)
	manifests := s.parse(nil, deployment("%REPLICAS%", `"paused":true,"replicas":0,`))
	ref := manifests[0].Ref
	s.applied(manifests, "1× POST 201")
	options := apply.Options{Owner: s.owner, Previous: func(ref object.Ref) *strategy.Manifest { return s.last[ref] }, DetectConflicts: true}
	contested := func(manifests []strategy.Manifest, requests, rivals string) apply.Outcome {
		t.Helper()
		outcome := s.applier.Apply(t.Context(), manifests, options)[0]
		if got := strings.Join(outcome.ConflictingManagers, " "); outcome.Err != nil || got != rivals {
			t.Errorf("rivals %q, want %q; %v", got, rivals, outcome.Err)
		}
		s.wantRequests(requests)
		return outcome
	}
	contested(manifests, "", "")
	s.patch(ref, "kubectl-edit", `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"y"}]}}}}`)
	s.patch(ref, "autoscaler", `{"spec":{"replicas":1}}`, "scale")
	s.patch(ref, "bystander", `{"metadata":{"labels":{"x":"y"}}}`)
	s.paused(ref)
	if outcome := contested(manifests, "1× GET 200, 1× PUT 200", "autoscaler kubectl-edit"); outcome.Action != apply.Updated {
		t.Errorf("got %s", outcome.Action)
	}
	// Set right meanwhile: the reading tells.
	s.paused(ref)
	drifted := s.cache.Get(ref).Object.DeepCopy()
	drifted.Object["spec"].(map[string]any)["replicas"] = int64(7)
	s.cache.Learn(ref, drifted)
	if outcome := contested(manifests, "1× GET 200", ""); outcome.Action != apply.Unchanged {
		t.Errorf("got %s", outcome.Action)
	}
	// A change of the manifest is no repair, nor is what was not contested.
	s.patch(ref, "kubectl-edit", `{"spec":{"minReadySeconds":3}}`)
	s.paused(ref)
	changed := s.parse(nil, deployment("%REPLICAS%", `"paused":true,"replicas":0,"minReadySeconds":2,`))
	contested(changed, "1× PUT 200", "")
	s.last[ref] = &changed[0]
	s.patch(ref, "kubectl-edit", `{"spec":{"minReadySeconds":3}}`)
	s.paused(ref)
	options.DetectConflicts = false
	contested(changed, "1× PUT 200", "")
	options.DetectConflicts = true
	// A missing object is made; nobody is named.
	s.delete(ref)
	s.cache.Learn(ref, nil)
	contested(changed, "1× POST 201", "")
}

func TestDetectConflictsApply(t *testing.T) {
	s := newSpoke(t)
	manifests := s.parse(applyConfig("", true), data(`{"a":"1"}`))
	s.applied(manifests, "1× PATCH 201")
	s.patch(manifests[0].Ref, "other", `{"data":{"a":"2"}}`)
	outcome := s.applier.Apply(t.Context(), manifests, apply.Options{
		Owner: s.owner, Previous: func(object.Ref) *strategy.Manifest { return &manifests[0] }, DetectConflicts: true,
	})[0]
	s.wantRequests("1× GET 200, 1× PATCH 200")
	if len(outcome.ConflictingManagers) != 1 || outcome.ConflictingManagers[0] != "other" {
		t.Errorf("rivals %v, %v", outcome.ConflictingManagers, outcome.Err)
	}
}
