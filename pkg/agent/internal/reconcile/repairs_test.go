package reconcile

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	"github.com/workwire/workwire/test/kit"
)

func TestRepairsBackOff(t *testing.T) {
	r := &repairs{}
	ref := object.Ref{Name: "a"}
	now := time.Unix(1000, 0)
	last := time.Duration(0)
	for i := range 15 {
		if r.contested() != (i >= flappingThreshold) {
			t.Errorf("after %d repairs contested is %v", i, r.contested())
		}
		told := r.noteObject(ref, now, func() string { return "flaps" })
		if flaps := r.flapping(ref) != ""; flaps != (i >= flappingThreshold) || told != r.flapping(ref) {
			t.Errorf("repair %d: the object flaps is %v, told %q", i, flaps, told)
		}
		r.note(now)
		wait := r.notBefore.Sub(now)
		if wait < last || wait > maxRepairDelay {
			t.Errorf("repair %d: wait of %v after one of %v", i, wait, last)
		}
		last, now = wait, r.notBefore
	}
	if last != maxRepairDelay {
		t.Errorf("the wait ends up at %v", last)
	}
	if left := r.expire(r.last.Add(repairResetAfter - time.Second)); left != time.Second || r.flapping(ref) == "" {
		t.Errorf("a second before the end %v is left, and it is %q", left, r.flapping(ref))
	}
	if left := r.expire(r.last.Add(repairResetAfter)); left != 0 || r.flapping(ref) != "" || r.objects != nil {
		t.Errorf("at the end %v is left, and it is %q", left, r.flapping(ref))
	}
	r.note(r.last.Add(repairResetAfter + time.Second))
	if r.count != 1 {
		t.Errorf("the first repair after a fight is number %d", r.count)
	}
}

// TestEachObjectFlapsByItself: the first repair of an object in a work whose other object flaps is a
// repair, and the fight about one object ends while that about another goes on.
func TestEachObjectFlapsByItself(t *testing.T) {
	r, a, b := &repairs{}, object.Ref{Name: "a"}, object.Ref{Name: "b"}
	flaps := func() string { return "flaps" }
	registry := prometheus.NewRegistry()
	m, e := newMetrics(registry, NewTable()), &entry{}
	gauge := func() float64 {
		e.history.repairs = *r
		m.countFlapping(e)
		return kit.Metric(t, registry, "workwire_agent_objects_flapping")
	}
	now := time.Unix(1000, 0)
	for range flappingThreshold + 1 {
		r.noteObject(a, now, flaps)
	}
	if told := r.noteObject(b, now, flaps); told != "" || r.flapping(a) == "" || gauge() != 1 {
		t.Errorf("a: %q, b: %q, the gauge says %v", r.flapping(a), told, gauge())
	}
	now = now.Add(repairResetAfter - time.Second)
	for range flappingThreshold + 1 {
		r.noteObject(b, now, flaps)
	}
	if left := r.expire(now); left != time.Second || gauge() != 2 {
		t.Errorf("%v is left, %v flap", left, gauge())
	}
	if left := r.expire(now.Add(time.Second)); left != repairResetAfter-time.Second || r.flapping(a) != "" || r.flapping(b) == "" || gauge() != 1 {
		t.Errorf("%v is left, a: %q, b: %q", left, r.flapping(a), r.flapping(b))
	}
	*r = repairs{} // as by another spec
	if gauge() != 0 {
		t.Errorf("%v flap of nothing", gauge())
	}
}

func TestMessagesOfRepairs(t *testing.T) {
	many := strings.Split(strings.Repeat("/data/k ", maxNamed+2), " ")[:maxNamed+2]
	updated := func(differences, managers []string) *apply.Outcome {
		return &apply.Outcome{Action: apply.Updated, Differences: differences, ConflictingManagers: managers}
	}
	created := &apply.Outcome{Action: apply.Created}
	flaps := func(outcome *apply.Outcome, others ...string) string { return flappingMessage("web", others, outcome) }
	for name, c := range map[string]struct{ got, want string }{
		"managers":   {flaps(updated([]string{"/data/k"}, []string{"kubectl", "hpa"})), `ManifestWork "web" sets /data/k, which is undone again and again by field manager "kubectl", field manager "hpa"; the agent restores it with backoff`},
		"both":       {flaps(updated([]string{"/data/k"}, []string{"hpa"}), `ManifestWork "reads it"`), `by field manager "hpa"; the agent`},
		"works":      {flaps(updated([]string{"/data/k"}, nil), `ManifestWork "two"`), `by ManifestWork "two"; the`},
		"not known":  {flaps(updated([]string{"/data/k"}, nil)), `by another actor; the agent`},
		"deleted":    {flaps(created, `ManifestWork "two"`), `ManifestWork "web" creates the object, which is deleted again and again by another actor;`},
		"what to do": {flaps(created), "or remove it from the work"},
		"or that":    {flaps(updated(nil, nil)), "ignoreFields of ServerSideApply"},
		"restored":   {driftMessage("web", updated([]string{"/data/k", "/data/l"}, nil)), `Restored /data/k, /data/l, which was changed: ManifestWork "web" declares it`},
		"again":      {driftMessage("web", created), `Created the object again, which was deleted: ManifestWork "web" declares it`},
		"many":       {driftMessage("web", updated(many, nil)), "/data/k and 2 more, which was changed"},
		"no field":   {driftMessage("web", updated(nil, nil)), "Restored the object, which was changed"},
	} {
		if !strings.Contains(c.got, c.want) {
			t.Errorf("%s: %q, want %q", name, c.got, c.want)
		}
	}
}

// The write of a change that had to wait, or was refused at first, is no repair.
func TestALateChangeIsNoRepair(t *testing.T) {
	ref, before, now := object.Ref{Name: "a"}, &inbox.Entry{}, &inbox.Entry{}
	e := &entry{history: history{spec: now, applied: map[object.Ref]*inbox.Entry{ref: before}}}
	rec := &reconciliation{subject: subject{entry: e, work: now}, manifests: []strategy.Manifest{{Ref: ref}}, outcomes: []apply.Outcome{{Action: apply.Updated}}}
	rec.last = newLastApplied(&e.history, now, rec.manifests, nil)
	if rec.repaired(0) {
		t.Error("a change counts as a repair")
	}
	e.history.applied[ref] = now
	if !rec.repaired(0) {
		t.Error("a repair does not count")
	}
}
