package agent

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/agent/object"
	"github.com/workwire/workwire/pkg/agent/strategy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	memorytransport "github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/wire"
)

func TestCompleted(t *testing.T) {
	rule := []workv1.ConditionRule{{Condition: workv1.ManifestComplete, Type: workv1.CelConditionExpressionsType}}
	other := []workv1.ConditionRule{{Condition: "Initialized", Type: workv1.CelConditionExpressionsType}}
	wellKnown := []workv1.ConditionRule{{Condition: workv1.ManifestComplete, Type: workv1.WellKnownConditionsType}}
	seen := func(conditions ...string) sight {
		s := sight{live: object.Live{State: object.Present, Object: &unstructured.Unstructured{}}}
		for _, status := range conditions {
			s.conditions = append(s.conditions, metav1.Condition{Type: workv1.ManifestComplete, Status: metav1.ConditionStatus(status)})
		}
		return s
	}
	gone, unknown := sight{live: object.Live{State: object.Absent}}, sight{}
	type manifest struct {
		rules []workv1.ConditionRule
		sight sight
		was   bool
	}
	for name, c := range map[string]struct {
		manifests []manifest
		complete  []bool
		work      bool
	}{
		"no rules":                          {[]manifest{{nil, seen(), true}}, []bool{false}, false},
		"a rule for something else":         {[]manifest{{other, seen(), true}}, []bool{false}, false},
		"a rule that gives nothing":         {[]manifest{{wellKnown, seen(), true}}, []bool{false}, false},
		"complete":                          {[]manifest{{rule, seen("True"), false}}, []bool{true}, true},
		"not complete":                      {[]manifest{{rule, seen("False"), false}}, []bool{false}, false},
		"turned false":                      {[]manifest{{rule, seen("False"), true}}, []bool{false}, false},
		"turned unknown":                    {[]manifest{{rule, seen("Unknown"), true}}, []bool{false}, false},
		"cleaned up":                        {[]manifest{{rule, gone, true}}, []bool{true}, true},
		"not seen":                          {[]manifest{{rule, unknown, true}}, []bool{true}, true},
		"never was":                         {[]manifest{{rule, gone, false}}, []bool{false}, false},
		"the rule has gone":                 {[]manifest{{nil, gone, true}}, []bool{false}, false},
		"one of two":                        {[]manifest{{rule, gone, true}, {rule, seen("False"), false}}, []bool{true, false}, false},
		"both":                              {[]manifest{{rule, gone, true}, {rule, seen("True"), false}}, []bool{true, true}, true},
		"those without a rule do not count": {[]manifest{{nil, seen(), false}, {rule, seen("True"), false}}, []bool{false, true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var manifests []strategy.Manifest
			var sights []sight
			var before []bool
			for i, m := range c.manifests {
				manifests = append(manifests, strategy.Manifest{
					Meta:           workv1.ManifestResourceMeta{Ordinal: int32(i), Version: "v1", Kind: "ConfigMap"},
					ConditionRules: m.rules,
				})
				sights, before = append(sights, m.sight), append(before, m.was)
			}
			got := completed(manifests, sights, func(meta workv1.ManifestResourceMeta) bool { return before[meta.Ordinal] })
			if !slices.Equal(got.manifests, c.complete) || got.work != c.work {
				t.Errorf("got %+v, want %v and %v", got, c.complete, c.work)
			}
		})
	}
}

func TestRepairsBackOff(t *testing.T) {
	m := &memory{}
	ref := object.Ref{Name: "a"}
	now := time.Unix(1000, 0)
	outcome := &strategy.Outcome{Action: strategy.Updated, Differences: []string{"/data/k"}, Rivals: []string{"kubectl", "other"}}
	last := time.Duration(0)
	for i := range 15 {
		if m.contested() != (i >= manyRepairs) {
			t.Errorf("after %d repairs contested is %v", i, m.contested())
		}
		m.fightOver(ref, outcome)
		if fighting := m.fightFor(ref) != nil; fighting != (i >= manyRepairs) {
			t.Errorf("repair %d: a fight is %v", i, fighting)
		}
		m.heal(now)
		rest := m.rest.Sub(now)
		if rest < last || rest > lastRest {
			t.Errorf("repair %d: rest of %v after one of %v", i, rest, last)
		}
		last, now = rest, m.rest
	}
	if last != lastRest {
		t.Errorf("the rest ends up at %v", last)
	}
	const want = `conflict with field manager "kubectl", "other", which changes /data/k again and again: it is restored less and less often ` +
		`until that ends; leave the field to it, or ignore it with ignoreFields of ServerSideApply`
	if got := m.fightFor(ref); got == nil || got.Error() != want {
		t.Errorf("the fight reads %v", got)
	}
	if left := m.calm(m.lastly.Add(peace - time.Second)); left != time.Second || m.fightFor(ref) == nil {
		t.Errorf("a second before peace %v is left, and the fight is %v", left, m.fightFor(ref))
	}
	if left := m.calm(m.lastly.Add(peace)); left != 0 || m.fightFor(ref) != nil {
		t.Errorf("at peace %v is left, and the fight is %v", left, m.fightFor(ref))
	}
	m.heal(m.lastly.Add(peace + time.Second))
	if m.healed != 1 {
		t.Errorf("the first repair after peace is number %d", m.healed)
	}
}

func TestSourceIsAskedAgain(t *testing.T) {
	s := newAnswers()
	now := time.Now()
	if len(s.ask("hub1")) != 1 || s.of("hub1") || s.of("") {
		t.Fatal("the first request has no probe, or was answered")
	}
	if left := s.repeat("hub1", time.Minute, now); left <= 0 {
		t.Error("a source that was just asked is asked again at once")
	}
	waited := time.Duration(0)
	for range 12 {
		now = now.Add(longestAsking + time.Second)
		if left := s.repeat("hub1", time.Minute, now); left != 0 {
			t.Errorf("after the longest wait %v is left", left)
		}
		left := s.repeat("hub1", time.Minute, now)
		if left < waited || left > longestAsking {
			t.Errorf("a wait of %v after one of %v", left, waited)
		}
		waited = left
	}
}

// A record that can not be dealt with is retried less and less often, although no
// work goes by its name.
func TestReleaseKeepsTheCountOfFailures(t *testing.T) {
	a, err := New(Config{
		Cluster: "cluster1", ClientID: "agent", BrokerHost: "broker", Transport: memorytransport.NewBroker().Client("agent"), Kube: &rest.Config{},
		Topics: wire.Topics{SourceEvents: "sources/hub1/clusters/+/sourceevents", AgentEvents: "sources/hub1/clusters/+/agentevents"},
	})
	if err != nil {
		t.Fatal(err)
	}
	a.queue.AddRateLimited("name")
	a.release("name")
	if n := a.queue.NumRequeues("name"); n != 1 {
		t.Errorf("%d failures are counted, want 1", n)
	}
}
