package delivery

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/security/sealing"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/wire"
)

func testWork(name string, generation int64) *workv1.ManifestWork {
	work := &workv1.ManifestWork{}
	work.Name, work.Namespace, work.Generation = name, "cluster1", generation
	work.UID = wire.UIDFor("hub1", "cluster1", name)
	work.Spec.Workload.Manifests = []workv1.Manifest{{}}
	work.Spec.Workload.Manifests[0].Raw = fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"generation":"%d"}}`, name, generation)
	return work
}

func deleting(work *workv1.ManifestWork) *workv1.ManifestWork {
	work.DeletionTimestamp = &metav1.Time{Time: time.Unix(1000, 0)}
	return work
}

// keeping has work leave its objects when it is deleted.
func keeping(work *workv1.ManifestWork) *workv1.ManifestWork {
	work.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
	return work
}

// refusedAt has the status of work say that a generation cannot be sent, and that the agent has reported another one; 0: none.
func refusedAt(work *workv1.ManifestWork, generation, reported int64) *workv1.ManifestWork {
	appliedAt(work, generation, workv1.ReasonTooLarge)
	if reported > 0 {
		work.Status.Conditions = append(work.Status.Conditions, metav1.Condition{Type: workv1.WorkAvailable, ObservedGeneration: reported})
	}
	return work
}

func appliedAt(work *workv1.ManifestWork, generation int64, reason string) *workv1.ManifestWork {
	work.Status.Conditions = []metav1.Condition{{Type: workv1.WorkApplied, Status: metav1.ConditionTrue, Reason: reason, ObservedGeneration: generation}}
	return work
}

func waiting(work *workv1.ManifestWork) *workv1.ManifestWork {
	work.Status.Conditions[0].Status = metav1.ConditionUnknown
	return work
}

func TestPlanPublish(t *testing.T) {
	now := time.Unix(2000, 0)
	live := revisionOf(testWork("w", 3))
	for _, c := range []struct {
		name   string
		state  workRecord
		work   *workv1.ManifestWork
		action wire.Action // empty: nothing is published
		known  bool
		// relabeled: the work's labels or annotations may have changed at this generation
		relabeled bool
		// generation published, if it is not the work's
		generation wire.Generation
	}{
		{name: "new", work: testWork("w", 1), action: wire.Create},
		{name: "new, at a later generation", work: testWork("w", 3), action: wire.Create},
		{name: "changed", state: workRecord{first: 2, published: revision{generation: 2}}, work: testWork("w", 3), action: wire.Update},
		{name: "confirmed before", state: workRecord{confirmed: 2}, work: testWork("w", 3), action: wire.Update},
		{name: "repeat of a create", state: workRecord{intent: repeat, first: 3, published: live}, work: testWork("w", 3), action: wire.Create},
		{name: "repeat of an update", state: workRecord{intent: repeat, first: 1, published: live}, work: testWork("w", 3), action: wire.Update},
		{name: "nothing new", state: workRecord{first: 3, published: live}, work: testWork("w", 3)},
		{name: "asked for", state: workRecord{intent: reply, first: 3, published: live}, work: testWork("w", 3), action: wire.ResyncResponse},
		{name: "applied before a restart", work: appliedAt(testWork("w", 3), 3, "AppliedManifestWorkComplete"), known: true},
		{name: "applied before a restart, then relabeled", work: appliedAt(testWork("w", 3), 3, "AppliedManifestWorkComplete"), relabeled: true, action: wire.Create},
		{name: "waits since before a restart", work: waiting(appliedAt(testWork("w", 3), 3, workv1.ReasonStaged)), action: wire.Create},
		{name: "had an invalid time before a restart", work: appliedAt(testWork("w", 3), 3, workv1.ReasonInvalidApplyAt), action: wire.Create},
		{name: "had an invalid name before a restart", work: appliedAt(testWork("w", 3), 3, workv1.ReasonInvalidDependsOn), action: wire.Create},
		{name: "an older one applied before a restart", work: appliedAt(testWork("w", 3), 2, "AppliedManifestWorkComplete"), action: wire.Create},
		{name: "applied before a restart, then restored", state: workRecord{authoritative: true}, work: appliedAt(testWork("w", 3), 3, "X"), action: wire.Create},
		{name: "refused before a restart", work: appliedAt(testWork("w", 3), 3, workv1.ReasonTooLarge), action: wire.Create},
		{name: "status arrived first", state: workRecord{confirmed: 3}, work: testWork("w", 3), known: true},
		{name: "deleting", state: workRecord{first: 3, published: live}, work: deleting(testWork("w", 4)), action: wire.Delete},
		{name: "deleting, applied before a restart", work: deleting(appliedAt(testWork("w", 3), 3, "X")), action: wire.Delete},
		{name: "deleting, asked for", state: workRecord{intent: reply}, work: deleting(testWork("w", 4)), action: wire.ResyncResponse},
		{name: "changed and deleted before the change left", state: workRecord{first: 3, published: live}, work: deleting(testWork("w", 5)), action: wire.Update, generation: 4},
		{name: "the same, after a restart", work: deleting(appliedAt(testWork("w", 5), 3, "X")), action: wire.Create, generation: 4},
		{name: "changed, deleted, and the change was published", state: workRecord{first: 3, published: revision{generation: 4}}, work: deleting(testWork("w", 5)), action: wire.Delete},
		{name: "changed and deleted, and the change does not fit", state: workRecord{first: 3, published: live, refused: &refusal{revision: revision{generation: 4, metadata: live.metadata}}},
			work: deleting(testWork("w", 5)), action: wire.Delete},
		{name: "the same, and it keeps objects", state: workRecord{first: 3, published: live, refused: &refusal{revision: revision{generation: 4, metadata: live.metadata}, holds: true}},
			work: keeping(deleting(testWork("w", 5)))},
		{name: "the same, which was refused before the deletion", state: workRecord{first: 3, published: live, refused: &refusal{revision: revision{generation: 4, metadata: live.metadata}}},
			work: keeping(deleting(testWork("w", 5))), action: wire.Update, generation: 4},
		{name: "the same, and the agent deletes it", state: workRecord{said: saidDeleting, published: live, refused: &refusal{revision: revision{generation: 4, metadata: live.metadata}, holds: true}},
			work: keeping(deleting(testWork("w", 5))), action: wire.Delete},
		{name: "the same, refused before a restart", work: keeping(deleting(refusedAt(testWork("w", 5), 4, 3))), action: wire.Create, generation: 4},
		{name: "refused all the time, and deleted after a restart", work: keeping(deleting(refusedAt(testWork("w", 5), 4, 0))), action: wire.Delete},
		{name: "deleted, keeps objects, and the agent has some spec of it", state: workRecord{intent: reply, recorded: true},
			work: keeping(deleting(testWork("w", 5))), action: wire.ResyncResponse, generation: 4},
		{name: "the same, and its status is of the last one, which it has lost", state: workRecord{intent: reply, recorded: true},
			work: keeping(deleting(appliedAt(testWork("w", 5), 4, workv1.ReasonAppliedManifestWorkFailed))), action: wire.ResyncResponse, generation: 4},
		{name: "the same, and the agent deletes it", state: workRecord{intent: reply, recorded: true, said: saidDeleting},
			work: keeping(deleting(testWork("w", 5))), action: wire.ResyncResponse},
		{name: "the same, and it keeps none", state: workRecord{intent: reply, recorded: true}, work: deleting(testWork("w", 5)), action: wire.ResyncResponse},
		{name: "never published, and deleted", work: deleting(testWork("w", 5)), action: wire.Delete},
		{name: "both were published and lost, and the agent asks", state: workRecord{intent: reply, first: 3, published: revision{generation: 5, deleting: true}, confirmed: 3},
			work: deleting(testWork("w", 5)), action: wire.ResyncResponse, generation: 4},
		{name: "the same, and its list leaves the work out", state: workRecord{intent: missed, first: 3, published: revision{generation: 5, deleting: true}, confirmed: 3},
			work: deleting(testWork("w", 5)), action: wire.Update, generation: 4},
		{name: "deletion repeated", state: workRecord{intent: repeat, first: 3, published: revision{generation: 5, deleting: true}}, work: deleting(testWork("w", 5)), action: wire.Delete},
		{name: "deleted already", state: workRecord{said: saidDeleted, published: live}, work: deleting(testWork("w", 4))},
		{name: "refused", state: workRecord{intent: repeat, refused: &refusal{revision: live}}, work: testWork("w", 3)},
		{name: "refused, then changed", state: workRecord{refused: &refusal{revision: live}}, work: testWork("w", 4), action: wire.Create},
		{name: "removed", state: workRecord{intent: repeat, removed: &removedWork{generation: 3, meta: &metav1.ObjectMeta{Name: "w"}}}, action: wire.Delete},
		{name: "never had", state: workRecord{intent: reply, removed: &removedWork{generation: 3}}, action: wire.ResyncResponse},
		{name: "not there yet", state: workRecord{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.state.key = workKey{uid: wire.UIDFor("hub1", "cluster1", "w"), cluster: "cluster1"}
			p := planPublish(&c.state, StoredWork{Work: c.work, Relabeled: c.relabeled}, "hub1", now)
			if p.known != c.known {
				t.Errorf("known is %v, want %v", p.known, c.known)
			}
			if p.spec == nil {
				if c.action != "" {
					t.Fatalf("nothing is published, want a %s", c.action)
				}
				return
			}
			if p.spec.Action != c.action {
				t.Errorf("action %q, want %q", p.spec.Action, c.action)
			}
			if c.generation != 0 && (p.spec.Generation != c.generation || p.spec.Meta.Generation != int64(c.generation) || !p.more) {
				t.Errorf("generation %d, in the metadata %d, more is %v; want %d and more", p.spec.Generation, p.spec.Meta.Generation, p.more, c.generation)
			}
			wantDeletes := (c.work == nil || c.work.DeletionTimestamp != nil) && c.generation == 0
			if p.spec.IsDeletion() != wantDeletes {
				t.Errorf("deletes is %v, want %v", p.spec.IsDeletion(), wantDeletes)
			}
			if !wantDeletes {
				p.spec.Bundle = wire.NewBundle(&c.work.Spec)
			}
			if _, err := wire.Encode(p.spec, now); err != nil {
				t.Errorf("Encode: %v", err)
			}
		})
	}
}

// TestPublishedMetadata: agents receive only the metadata that concerns them.
func TestPublishedMetadata(t *testing.T) {
	work := testWork("w", 3)
	work.Labels = map[string]string{"app": "x"}
	work.Annotations = map[string]string{"note": "y", corev1.LastAppliedConfigAnnotation: "the whole work"}
	work.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	work.Finalizers = []string{workv1.ManifestWorkFinalizer}
	work.OwnerReferences = []metav1.OwnerReference{{Name: "owner"}}
	work.ResourceVersion = "12345"
	p := planPublish(&workRecord{}, StoredWork{Work: work}, "hub1", time.Unix(0, 0))
	got, err := json.Marshal(p.spec.Meta)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"name":"w","namespace":"cluster1","uid":"` + string(work.UID) + `","resourceVersion":"3","generation":3,"labels":{"app":"x"},"annotations":{"note":"y"}}`
	if string(got) != want {
		t.Errorf("metadata\n%s\nwant\n%s", got, want)
	}
	if work.Annotations[corev1.LastAppliedConfigAnnotation] == "" {
		t.Error("the work itself has changed")
	}
}

func TestRevisionIncludesMetadata(t *testing.T) {
	base := testWork("w", 1)
	base.Labels = map[string]string{"a": "1", "b": "2"}
	same := base.DeepCopy()
	same.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "x"}
	same.Finalizers = []string{"f"}
	same.ResourceVersion = "7"
	if revisionOf(base) != revisionOf(same) {
		t.Error("metadata that agents do not receive changes the revision")
	}
	for name, change := range map[string]func(*workv1.ManifestWork){
		"label added":      func(w *workv1.ManifestWork) { w.Labels["c"] = "3" },
		"values exchanged": func(w *workv1.ManifestWork) { w.Labels["a"], w.Labels["b"] = "2", "1" },
		"annotation, not label": func(w *workv1.ManifestWork) {
			w.Annotations, w.Labels = w.Labels, nil
		},
	} {
		other := base.DeepCopy()
		change(other)
		if revisionOf(base) == revisionOf(other) {
			t.Errorf("%s: the revision does not change", name)
		}
	}
}

func TestCheckStatus(t *testing.T) {
	held := StoredWork{Work: testWork("w", 5), FirstGeneration: 3}
	good := func() *wire.Status {
		return &wire.Status{UID: held.Work.UID, Generation: 5, Source: "hub1", Cluster: "cluster1", Sequence: 12}
	}
	done := []metav1.Condition{{Type: workv1.WorkDeleted, Status: metav1.ConditionTrue}}
	topic := sender{source: "hub1", cluster: "cluster1"}
	for _, c := range []struct {
		name   string
		status func(*wire.Status)
		from   sender
		held   StoredWork
		has    bool
		old    bool
		want   verdict
	}{
		{name: "good", from: topic, held: held, has: true, want: accepted},
		{name: "of an older generation", status: func(s *wire.Status) { s.Generation = 4 }, from: topic, held: held, has: true, want: accepted},
		{name: "without a generation", status: func(s *wire.Status) { s.Generation = 0 }, from: topic, held: held, has: true, want: accepted},
		{name: "without a sequence", status: func(s *wire.Status) { s.Sequence = 0 }, from: topic, held: held, has: true, want: accepted},
		{name: "without a source", status: func(s *wire.Status) { s.Source = "" }, from: topic, held: held, has: true, want: accepted},
		{name: "for another source", status: func(s *wire.Status) { s.Source = "hub2" }, from: topic, held: held, has: true, want: foreign},
		{name: "on another source's topic", from: sender{source: "hub2", cluster: "cluster1"}, held: held, has: true, want: foreign},
		{name: "of another cluster than its topic's", status: func(s *wire.Status) { s.Cluster = "cluster2" }, from: topic, held: held, has: true, want: wrongCluster},
		{name: "from another cluster than the work's", status: func(s *wire.Status) { s.Cluster = "cluster2" },
			from: sender{source: "hub1", cluster: "cluster2"}, held: held, has: true, want: wrongCluster},
		{name: "on a topic of no cluster", from: sender{source: "hub1"}, held: held, has: true, want: wrongCluster},
		{name: "unknown", from: topic, want: unknownWork},
		{name: "of an earlier work", status: func(s *wire.Status) { s.Generation = 2 }, from: topic, held: held, has: true, want: formerWork},
		{name: "of a generation to come", status: func(s *wire.Status) { s.Generation = 6 }, from: topic, held: held, has: true, want: ahead},
		{name: "twice", status: func(s *wire.Status) { s.Sequence = 11 }, old: true, from: topic, held: held, has: true, want: outOfOrder},
		{name: "deleted unasked", status: func(s *wire.Status) { s.Status.Conditions = done }, from: topic, held: held, has: true, want: notDeleting},
		{name: "deleted", status: func(s *wire.Status) { s.Status.Conditions = done }, from: topic,
			held: StoredWork{Work: deleting(testWork("w", 5))}, has: true, want: accepted},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := good()
			if c.status != nil {
				c.status(s)
			}
			if got := checkStatus(s, c.from, "hub1", c.held, c.has, c.old); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// TestSender: which senders may send which requests, on events and broadcast topics.
func TestSender(t *testing.T) {
	events, broadcast := sender{source: "hub1", cluster: "cluster1"}, sender{cluster: "cluster1"}
	for _, c := range []struct {
		from    sender
		named   wire.SourceID
		cluster wire.ClusterName
		want    verdict
	}{
		{events, "hub1", "cluster1", accepted},
		{events, "", "cluster1", accepted},
		{broadcast, "hub1", "cluster1", accepted},
		{broadcast, "", "cluster1", accepted},
		{broadcast, "hub2", "cluster1", foreign},
		{broadcast, "", "cluster2", wrongCluster},
		{sender{source: "hub2", cluster: "cluster1"}, "hub1", "cluster1", foreign},
		{sender{}, "hub1", "", wrongCluster},
	} {
		if got := c.from.check("hub1", c.named, c.cluster); got != c.want {
			t.Errorf("from %+v for source %q about cluster %q: %s, want %s", c.from, c.named, c.cluster, got, c.want)
		}
	}
}

func TestRefusal(t *testing.T) {
	now := time.Unix(1000, 0)
	at := revision{generation: 4}
	for _, c := range []struct {
		err    error
		reason string
	}{
		{fmt.Errorf("publish: %w", &transport.TooLargeError{Size: 600_000, Limit: 512_000}), workv1.ReasonTooLarge},
		{fmt.Errorf("publish: %w", transport.ErrNotAuthorized), workv1.ReasonNotAuthorized},
		{&invalidClusterError{errors.New("cluster name \"a.b\"")}, workv1.ReasonInvalidClusterName},
		{fmt.Errorf("seal: %w", &sealing.NoKeyError{Cluster: "c1"}), workv1.ReasonNoSealKey},
		{transport.ErrNotConnected, ""},
		{errors.New("quota exceeded"), ""},
	} {
		r := newRefusal(c.err, at, now)
		ok := r != nil
		if ok != (c.reason != "") {
			t.Errorf("%v: refused is %v", c.err, ok)
			continue
		}
		if ok && (r.condition.Reason != c.reason || r.condition.ObservedGeneration != 4 || r.condition.Status != metav1.ConditionFalse) {
			t.Errorf("%v: condition %+v, want reason %s", c.err, r.condition, c.reason)
		}
	}
	r := newRefusal(&transport.TooLargeError{Size: 600_000, Limit: 512_000}, at, now)
	if !strings.Contains(r.condition.Message, "512000") {
		t.Errorf("the message does not give the limit: %s", r.condition.Message)
	}
	older := &wire.Status{Generation: 3, Status: appliedAt(testWork("w", 3), 3, "AppliedManifestWorkComplete").Status}
	r.addTo(older)
	if got := older.Status.Conditions[0]; got.Reason != workv1.ReasonTooLarge || len(older.Status.Conditions) != 1 {
		t.Errorf("a status of an older generation has %+v", older.Status.Conditions)
	}
	current := &wire.Status{Generation: 4, Status: appliedAt(testWork("w", 4), 4, "AppliedManifestWorkComplete").Status}
	r.addTo(current)
	if got := current.Status.Conditions[0]; got.Reason == workv1.ReasonTooLarge {
		t.Error("a status of the refused generation is overwritten")
	}
}

// TestContentHashOnce: a spec is hashed once per generation, and again after the store was
// restored.
func TestContentHashOnce(t *testing.T) {
	work := testWork("w", 3)
	e, err := New(Config{Source: "hub1", Transport: memory.NewBroker().Client("hub1"), Works: one{work}, Logger: slog.New(slog.DiscardHandler),
		Topics: wire.Topics{SourceEvents: "sources/hub1/clusters/+/sourceevents", AgentEvents: "sources/hub1/clusters/+/agentevents"}})
	if err != nil {
		t.Fatal(err)
	}
	e.WorkChanged(work.UID)
	first := e.contentHash(work)
	if want, err := wire.ContentHash(wire.NewBundle(&work.Spec)); err != nil || first != want {
		t.Fatalf("hash %s, want %s, %v", first, want, err)
	}
	work.Spec = testWork("w", 4).Spec
	if again := e.contentHash(work); again != first {
		t.Error("the spec was hashed again")
	}
	e.WorkRestored(work)
	restored := e.contentHash(work)
	if restored == first {
		t.Error("the spec was not hashed after the restore")
	}
	work.Spec, work.Generation = testWork("w", 5).Spec, 4
	if next := e.contentHash(work); next == restored {
		t.Error("the next generation was not hashed")
	}
}
