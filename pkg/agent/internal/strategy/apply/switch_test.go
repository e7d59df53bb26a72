package apply_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/strategytest"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

var everyStrategy = []workv1.UpdateStrategyType{
	workv1.UpdateStrategyTypeUpdate, workv1.UpdateStrategyTypeCreateOnly,
	workv1.UpdateStrategyTypeServerSideApply, workv1.UpdateStrategyTypeReadOnly,
}

// The way a work may go: from any strategy to any other, the manifest changing with it, in one
// process and across a restart.
func TestSwitchStrategy(t *testing.T) {
	for _, from := range everyStrategy {
		for _, to := range everyStrategy {
			for _, restarted := range []bool{false, true} {
				name := string(from) + " to " + string(to)
				if restarted {
					name += ", after a restart"
				}
				t.Run(name, func(t *testing.T) { testSwitch(t, from, to, restarted) })
			}
		}
	}
}

func testSwitch(t *testing.T, from, to workv1.UpdateStrategyType, restarted bool) {
	s := newSpoke(t)
	parse := func(kind workv1.UpdateStrategyType, text string) []strategy.Manifest {
		return s.parse(func(w *workv1.ManifestWorkSpec) {
			w.ManifestConfigs = append(w.ManifestConfigs, workv1.ManifestConfigOption{
				ResourceIdentifier: workv1.ResourceIdentifier{Group: "apps", Resource: "deployments", Namespace: "*", Name: "*"},
				UpdateStrategy:     &workv1.UpdateStrategy{Type: kind},
			})
		}, text)
	}
	apply := func(manifests []strategy.Manifest) {
		t.Helper()
		if err := s.apply(manifests)[0].Err; err != nil {
			t.Fatal(err)
		}
	}
	before := deployment("%REPLICAS%", `"paused":true,"replicas":0,"minReadySeconds":3,`)
	after := deployment("%REPLICAS%", `"paused":true,"replicas":0,"revisionHistoryLimit":4,`)
	// Under ReadOnly nothing would be there to switch with.
	if from == workv1.UpdateStrategyTypeReadOnly {
		if err := s.apply(parse(workv1.UpdateStrategyTypeCreateOnly, before))[0].Err; err != nil {
			t.Fatal(err)
		}
	}
	apply(parse(from, before))
	manifests := parse(to, after)
	ref := manifests[0].Ref
	if restarted {
		s.restart()
	}
	s.see(ref)
	apply(manifests)

	live := s.get(ref)
	got := []any{nested(t, live, "spec", "minReadySeconds"), nested(t, live, "spec", "revisionHistoryLimit"), nested(t, live, "spec", "replicas")}
	want := []any{nil, int64(4), int64(0)}
	if to == workv1.UpdateStrategyTypeCreateOnly || to == workv1.UpdateStrategyTypeReadOnly {
		want = []any{int64(3), int64(10), int64(0)}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("minReadySeconds, revisionHistoryLimit, replicas: %s", diff)
	}
	if diff := cmp.Diff([]metav1.OwnerReference{s.owner}, live.GetOwnerReferences()); diff != "" {
		t.Error(diff)
	}
	if live.GetLabels()[object.AgentLabel] != agentHash {
		t.Errorf("labels %v", live.GetLabels())
	}
	// It has come to rest.
	s.see(ref)
	s.requests.take()
	s.applied(manifests, "")

	// Back again, with what was left out meanwhile: no former self is in the way.
	apply(parse(from, before))
	s.see(ref)
	if from == workv1.UpdateStrategyTypeUpdate || from == workv1.UpdateStrategyTypeServerSideApply {
		live = s.get(ref)
		got = []any{nested(t, live, "spec", "minReadySeconds"), nested(t, live, "spec", "revisionHistoryLimit")}
		if diff := cmp.Diff([]any{int64(3), int64(10)}, got); diff != "" {
			t.Errorf("switched back: minReadySeconds, revisionHistoryLimit: %s", diff)
		}
	}
}

// What an Update wrote becomes what the apply owns, under its own name.
func TestSwitchFromUpdateClaims(t *testing.T) {
	for name, manager := range map[string]string{"the same name": "work-agent", "another name": "work-agent-x"} {
		t.Run(name, func(t *testing.T) {
			s := newSpoke(t)
			update := s.parse(nil, data(`{"a":"1","b":"1"}`))
			ref := update[0].Ref
			s.applied(update, "1× POST 201")
			s.applied(s.parse(applyConfig(manager, false), data(`{"a":"2"}`)), "1× GET 200, 2× PATCH 200")
			live := s.get(ref)
			if got := managers(live); got != manager+" Apply" {
				t.Errorf("managers %s", got)
			}
			s.wantData(ref, `{"a":"2"}`)
			s.applied(s.parse(nil, data(`{"a":"3"}`)), "1× PUT 200")
			s.wantData(ref, `{"a":"3"}`)
		})
	}
}

// What another agent for ManifestWorks wrote by Update carries no hash: the conflict tells.
func TestSwitchFromForeignUpdate(t *testing.T) {
	s := newSpoke(t)
	manifests := s.parse(applyConfig("work-agent-x", false), data(`{"a":"2"}`))
	ref := manifests[0].Ref
	foreign := strategytest.Decode(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","ownerReferences":[`+asJSON(t, s.owner)+`]},"data":{"a":"1","b":"1"}}`)
	if _, err := s.resource(ref).Create(t.Context(), foreign, metav1.CreateOptions{FieldManager: "work-agent"}); err != nil {
		t.Fatal(err)
	}
	s.applied(manifests, "1× GET 200, 2× PATCH 200, 1× PATCH 409")
	live := s.get(ref)
	if got := managers(live); got != "work-agent-x Apply" {
		t.Errorf("managers %s", got)
	}
	s.wantData(ref, `{"a":"2"}`)
}

// The fields of another work are not taken over.
func TestSwitchLeavesOthers(t *testing.T) {
	s := newSpoke(t)
	update := s.parse(nil, data(`{"a":"3"}`))
	ref := update[0].Ref
	s.applied(update, "1× POST 201")
	s.patch(ref, "work-agent", `{"metadata":{"ownerReferences":[`+asJSON(t, s.owner)+`,`+asJSON(t, s.newOwner("second"))+`]}}`)
	outcome := s.apply(s.parse(applyConfig("", false), data(`{"a":"4"}`)))[0]
	if got := strategytest.ErrorText(outcome.Err); got != `Apply failed with 1 conflict: conflict with "work-agent" using v1: .data.a` {
		t.Errorf("got %q", got)
	}
	// An orphan of another work, written under our default name, is not ours either.
	s.patchOnly(ref, "work-agent", `{"metadata":{"ownerReferences":null}}`)
	s.restart()
	outcome = s.apply(s.parse(applyConfig("work-agent-x", false), data(`{"a":"4"}`)))[0]
	if got := strategytest.ErrorText(outcome.Err); got != `Apply failed with 1 conflict: conflict with "work-agent" using v1: .data.a` {
		t.Errorf("an orphan: %q", got)
	}
}

// The hash of ignoreFields says nothing any more once another strategy has written the object.
func TestSwitchToIgnoreFieldsAndBack(t *testing.T) {
	for name, restarted := range map[string]bool{"same process": false, "after a restart": true} {
		t.Run(name, func(t *testing.T) {
			s := newSpoke(t)
			step := func(change func(*workv1.ManifestWorkSpec), value, want string) {
				t.Helper()
				manifests := s.parse(change, data(`{"a":"`+value+`"}`))
				ref := manifests[0].Ref
				if restarted {
					s.restart()
				}
				if s.exists(ref) {
					s.see(ref)
				}
				if err := s.apply(manifests)[0].Err; err != nil {
					t.Fatal(err)
				}
				if got := dataOf(t, s.get(ref)); got != `{"a":"`+want+`"}` {
					t.Errorf("data %s, want %s", got, want)
				}
				s.requests.take()
				s.applied(manifests, "")
			}
			ignore := strategytest.IgnoreFields(strategytest.OnChange(".data"))
			step(ignore, "1", "1")
			step(nil, "2", "2")
			step(ignore, "1", "1")
			step(applyConfig("", false), "3", "3")
			step(ignore, "1", "1")
			step(strategytest.Configured(&workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeCreateOnly}), "4", "1")
			step(strategytest.IgnoreFields(strategytest.OnPresent(".data")), "5", "1")
			step(nil, "6", "6")
		})
	}
}
