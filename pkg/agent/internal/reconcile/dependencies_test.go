package reconcile

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// A work stays ready while only what is known of its source changes, and not when it gets another spec.
func TestStandingIsOfASpec(t *testing.T) {
	r := &Reconciler{Config: Config{Inbox: inbox.New(inbox.Config{Changed: func(inbox.Key) {}}), Table: NewTable()}}
	send := func(generation wire.Generation, identity, manifest string) (*inbox.Entry, inbox.Verdict) {
		change := r.Inbox.Put(&wire.Spec{
			Source: "hub1", UID: "uid-db", Generation: generation, SourceIdentity: identity, Meta: metav1.ObjectMeta{Name: "db"},
			Bundle: wire.NewBundle(&workv1.ManifestWorkSpec{Workload: workv1.ManifestsTemplate{
				Manifests: []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(manifest)}}},
			}}),
		}, nil)
		work, _ := r.Inbox.Get(change.Key)
		return work, change.Verdict
	}
	work, _ := send(1, "one", `{}`)
	name := r.naming.name("hub1", "db")
	r.Table.add(name, work.Key)
	r.Table.depend(r.Table.entry("app"), []string{name})
	r.noteStanding(t.Context(), &reconciliation{subject: subject{work: work, entry: r.Table.entry(name)}})
	if text := r.unreadyWork("hub1", "db"); text != "" {
		t.Fatalf("once applied, it %q", text)
	}
	again, verdict := send(1, "two", `{}`)
	if verdict != inbox.Same || again == work {
		t.Fatalf("the same spec of another identity is %s", verdict)
	}
	if text := r.unreadyWork("hub1", "db"); text != "" {
		t.Errorf("after another identity, it %q", text)
	}
	send(2, "two", `{"a":1}`)
	if text := r.unreadyWork("hub1", "db"); text != "is not applied" {
		t.Errorf("before its new spec is applied, it %q", text)
	}
}

// TestImpossible: what separates names by anything but commas is no name, and is not waited for forever.
func TestImpossible(t *testing.T) {
	for annotation, want := range map[string]string{"db, settings": "", "": "", "db; settings": `"db; settings"`, "db,db settings": `"db settings"`, "DB": `"DB"`, "cluster1/db": `"cluster1/db"`} {
		work := metav1.ObjectMeta{Annotations: map[string]string{workv1.DependsOnAnnotationKey: annotation}}
		rec := reconciliation{subject: subject{entry: &entry{}}, dependsOn: workv1.DependsOn(&work)}
		blocked := rec.blocked()
		if want == "" && blocked != nil || want != "" && (blocked == nil || blocked.Reason != workv1.ReasonInvalidDependsOn || !strings.Contains(blocked.Message, "has "+want+", which")) {
			t.Errorf("%q: %+v, want %q", annotation, blocked, want)
		}
	}
}

// What a work was when the last one left that depended on it says nothing of how it is when another one comes.
func TestStandingEndsWithTheLastDependent(t *testing.T) {
	table := NewTable()
	table.add("db", inbox.Key{})
	db, app := table.entry("db"), table.entry("app")
	known := standing{of: &workv1.Manifest{}}
	table.depend(app, []string{"db"})
	table.setStanding(db, known)
	table.depend(app, []string{"db", "settings"})
	if is := table.standingOf("db"); is != known {
		t.Errorf("while one depends on it, it is %+v", is)
	}
	table.depend(app, nil)
	table.setStanding(db, known) // by a reconcile that began before
	table.depend(table.entry("other"), []string{"db"})
	if is := table.standingOf("db"); is != (standing{}) {
		t.Errorf("for one that came later, it is %+v", is)
	}
}
