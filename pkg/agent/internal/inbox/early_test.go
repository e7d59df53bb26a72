package inbox

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

func TestIsEarly(t *testing.T) {
	applied := &Entry{Generation: 3, Spec: workv1.ManifestWorkSpec{Workload: workv1.ManifestsTemplate{Manifests: []workv1.Manifest{{}}}}}
	refused := &Entry{Generation: 3, Refusal: &Refusal{Generation: 4}}
	recovered := &Entry{} // from its AppliedManifestWork
	for name, c := range map[string]struct {
		held       *Entry
		generation wire.Generation // of the deletion
		answers    bool            // a question
		foreign    bool            // no source of Workwire
		want       bool
	}{
		"after the spec that is held":                {held: applied, generation: 4},
		"of the generation that is held":             {held: applied, generation: 3},
		"of an older one":                            {held: applied, generation: 2},
		"after one that is missing":                  {held: applied, generation: 5, want: true},
		"after one that is missing, as an answer":    {held: applied, generation: 5, answers: true},
		"after one that is missing, not of Workwire": {held: applied, generation: 5, foreign: true},
		"after a spec that was refused":              {held: refused, generation: 5},
		"after one that follows the refused one":     {held: refused, generation: 6, want: true},
		"no spec is known, after the first":          {held: recovered, generation: 2},
		"no spec is known, after a later one":        {held: recovered, generation: 3, want: true},
		"no spec is known, an answer":                {held: recovered, generation: 3, answers: true},
	} {
		in := &wire.Spec{Generation: c.generation, SourceIdentity: "one", Action: wire.Delete, DeletionTimestamp: &metav1.Time{}}
		if c.answers {
			in.Action = wire.ResyncResponse
		}
		if c.foreign {
			in.SourceIdentity = ""
		}
		if got := isEarly(c.held, in); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// TestEarlyDeletionWaits: the source is asked now and then, and a deletion that is still repeated later is carried out.
func TestEarlyDeletionWaits(t *testing.T) {
	start := time.Unix(1_790_000_000, 0)
	e := &early{}
	for _, c := range []struct {
		after time.Duration
		want  Verdict
		ask   bool
	}{
		{0, Early, true},
		{EarlyQuestion - 1, Early, false},
		{EarlyQuestion, Early, true},
		{EarlyQuestion + time.Second, Early, false},
		{MaxEarly - 1, Early, true},
		{MaxEarly, Deletion, false},
		{2 * MaxEarly, Deletion, false},
	} {
		if verdict, ask := e.putOff(start.Add(c.after)); verdict != c.want || ask != c.ask {
			t.Errorf("after %s: %s and %t, want %s and %t", c.after, verdict, ask, c.want, c.ask)
		}
	}
}

// specOf returns a spec of a work of the source hub, and deletionOf its deletion.
func specOf(generation wire.Generation) *wire.Spec {
	return &wire.Spec{
		UID: "u", Source: "hub", Cluster: "c", Generation: generation, SourceIdentity: "one", Action: wire.Update,
		Meta: metav1.ObjectMeta{Name: "web"}, Bundle: &wire.Bundle{Manifests: []workv1.Manifest{{}}},
	}
}

func deletionOf(generation wire.Generation) *wire.Spec {
	d := specOf(generation)
	d.Bundle, d.Action, d.DeletionTimestamp = nil, wire.Delete, &metav1.Time{Time: time.Now()}
	return d
}

// TestPutOffDeletion: a deletion that follows a spec that is missing counts once that spec has come.
func TestPutOffDeletion(t *testing.T) {
	spec, deletion := specOf, deletionOf(4)
	b := New(Config{Changed: func(Key) {}})
	for i, step := range []struct {
		in   *wire.Spec
		want Verdict
		ask  bool
	}{
		{spec(1), Added, false}, {deletion, Early, true}, {deletion, Early, false}, {spec(2), Replaced, false}, {deletion, Early, true}, {spec(3), Replaced, false}, {deletion, Deletion, false}, {deletion, Same, false},
	} {
		if change := b.Put(step.in, nil); change.Verdict != step.want || change.Ask != step.ask {
			t.Errorf("step %d: %+v, want %s and %t", i, change, step.want, step.ask)
		}
	}
}
