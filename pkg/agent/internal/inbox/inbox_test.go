package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/store"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/statestore"
	"github.com/workwire/workwire/pkg/security/sealing"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

var (
	dawn = time.Date(2031, 3, 4, 5, 6, 7, 0, time.UTC)
	dusk = dawn.Add(12 * time.Hour)
)

func uidOf(name string) types.UID { return types.UID("uid-" + name) }

func keyOf(name string) inbox.Key { return inbox.Key{Source: "hub", UID: uidOf(name)} }

// watched is an Inbox that records its changes.
type watched struct {
	*inbox.Inbox
	mu      sync.Mutex
	changes []inbox.Key
}

func watch(s *statestore.Store) *watched {
	w := &watched{}
	w.Inbox = inbox.New(inbox.Config{Store: s, Logger: slog.New(slog.DiscardHandler), Changed: func(k inbox.Key) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.changes = append(w.changes, k)
	}})
	return w
}

// changed returns the changes since the last call.
func (w *watched) changed() []inbox.Key {
	w.mu.Lock()
	defer w.mu.Unlock()
	changes := w.changes
	w.changes = nil
	return changes
}

// put calls Put and checks that the event is acknowledged, the verdict, and the reported changes.
func (w *watched) put(t *testing.T, in *wire.Spec, want inbox.Verdict, changed ...inbox.Key) inbox.Change {
	t.Helper()
	w.changed()
	acks := 0
	change := w.Put(in, func(err error) {
		if err != nil {
			t.Errorf("held with %v", err)
		}
		acks++
	})
	if change.Verdict != want || change.Key != (inbox.Key{Source: in.Source, UID: in.UID}) {
		t.Fatalf("Put = %v of %v, want %v", change.Verdict, change.Key, want)
	}
	if got := w.changed(); !slices.Equal(got, changed) {
		t.Errorf("told of %v, want %v", got, changed)
	}
	if acks != 1 {
		t.Errorf("held was called %d times", acks)
	}
	return change
}

func (w *watched) get(t *testing.T, key inbox.Key) *inbox.Entry {
	t.Helper()
	e, ok := w.Get(key)
	if !ok {
		t.Fatalf("work %v is not held", key)
	}
	return e
}

// decided checks that the works that a source has disowned are decided on once its answer is
// complete.
func (w *watched) decided(t *testing.T, source wire.SourceID, reason string, want ...inbox.Key) {
	t.Helper()
	w.changed()
	if d := w.DecideDisowned(source, time.Now()); d.Wait <= 0 || d.Wait > inbox.AnswerQuiet {
		t.Errorf("amid the answer the decision is %+v", d)
	}
	d := w.DecideDisowned(source, time.Now().Add(inbox.AnswerQuiet))
	changed := w.changed()
	for _, keys := range [][]inbox.Key{d.Keys, changed} {
		slices.SortFunc(keys, func(a, b inbox.Key) int { return strings.Compare(a.String(), b.String()) })
	}
	if d.Wait != 0 || d.Reason != reason || !slices.Equal(d.Keys, want) || !slices.Equal(changed, want) {
		t.Errorf("decided %+v and told of %v, want reason %q of %v", d, changed, reason, want)
	}
}

// wantHolder checks which work of a source has a name.
func (w *watched) wantHolder(t *testing.T, source wire.SourceID, name string, want inbox.Key) {
	t.Helper()
	if e, ok := w.ByName(source, name); !ok || e.Key != want {
		t.Errorf("the name %s is held by %v, want %v", name, e, want)
	}
}

// wantSuperseded checks which work lost its name by a change.
func wantSuperseded(t *testing.T, change inbox.Change, want ...inbox.Key) {
	t.Helper()
	if got := change.Superseded; (got != nil) != (len(want) > 0) || got != nil && *got != want[0] {
		t.Errorf("superseded is %v, want %v", got, want)
	}
}

// manifests returns the names of the manifests in force.
func manifests(e *inbox.Entry) string {
	var names []string
	for _, m := range e.Spec.Workload.Manifests {
		_, name, _ := strings.Cut(string(m.Raw), `"name":"`)
		names = append(names, strings.TrimSuffix(name, `"}}`))
	}
	return strings.Join(names, ",")
}

func TestLifeOfAWork(t *testing.T) {
	b := watch(nil)
	a := keyOf("a")
	b.put(t, spec("a", 1), inbox.Added, a)
	want := metav1.ObjectMeta{Name: "a", Namespace: "quay", UID: "uid-a", Generation: 1,
		Labels:      map[string]string{"team": "lights", "cloudevents.open-cluster-management.io/originalsource": "hub"},
		Annotations: map[string]string{"note": "x", "cloudevents.open-cluster-management.io/datatype": "io.open-cluster-management.works.v1alpha1.manifestbundles"},
		Finalizers:  []string{"cluster.open-cluster-management.io/manifest-work-cleanup"}}
	first := b.get(t, a)
	if diff := cmp.Diff(want, first.Meta); diff != "" {
		t.Errorf("metadata differs (-want +got):\n%s", diff)
	}
	if first.Cluster != "quay" || first.Generation != 1 || manifests(first) != "lamp" || first.Deleting != nil || !first.HasSpec() {
		t.Errorf("held is %+v", first)
	}

	b.put(t, spec("a", 1), inbox.Same)
	b.put(t, spec("a", 3, holding("lamp", "beam"), func(in *wire.Spec) {
		in.Trace = `{"t":"1"}`
		in.Meta.Labels = map[string]string{"team": "sails"}
	}), inbox.Replaced, a)
	b.put(t, spec("a", 2), inbox.Older)
	second := b.get(t, a)
	if second.Generation != 3 || manifests(second) != "lamp,beam" || second.Meta.Labels["team"] != "sails" || second.Trace != `{"t":"1"}` {
		t.Errorf("held is %+v", second)
	}
	if manifests(first) != "lamp" || first.Meta.Labels["team"] != "lights" {
		t.Error("what was read before has changed")
	}

	// A source that lost its metadata still speaks of the same work.
	b.put(t, spec("a", 4, bare, holding("beam")), inbox.Replaced, a)
	if e := b.get(t, a); e.Meta.Name != "a" || e.Meta.Labels["team"] != "sails" || e.Meta.Generation != 4 || manifests(e) != "beam" {
		t.Errorf("held is %+v", e)
	}

	b.put(t, spec("a", 4, bare, deleting), inbox.Disowned)
	b.decided(t, "hub", "", a)
	b.put(t, spec("a", 4, bare, deleting), inbox.Same)
	b.put(t, spec("a", 5), inbox.Late)
	dead := b.get(t, a)
	if dead.Deleting == nil || !dead.Deleting.Time.Equal(dusk) || dead.Meta.DeletionTimestamp == nil || dead.Meta.Name != "a" || manifests(dead) != "beam" {
		t.Errorf("held is %+v", dead)
	}
	if again := b.Forget(a); !again {
		t.Error("Forget does not say that a spec came meanwhile")
	}
	if got := b.changed(); !slices.Equal(got, []inbox.Key{a}) {
		t.Errorf("Forget tells of %v", got)
	}
	if _, ok := b.Get(a); ok || b.Len() != 0 || len(b.Sources()) != 0 || len(b.Keys()) != 0 {
		t.Error("something is held after Forget")
	}
	if b.Forget(a) || len(b.changed()) != 0 {
		t.Error("Forget of what is not held does something")
	}
	b.put(t, spec("a", 1, deleting), inbox.Unknown)
	b.put(t, spec("a", 1), inbox.Added, a)
	b.put(t, spec("a", 1, deleting), inbox.Deletion, a)
	if b.Forget(a) {
		t.Error("Forget says that a spec came, and none did")
	}
}

func TestDeletionHasTheSourcesGeneration(t *testing.T) {
	b := watch(nil)
	b.put(t, spec("a", 5), inbox.Added, keyOf("a"))
	applied := b.get(t, keyOf("a")).Received
	b.put(t, spec("a", 2, deleting), inbox.Deletion, keyOf("a"))
	deleted := b.get(t, keyOf("a")).Received
	if e := b.get(t, keyOf("a")); e.Generation != 2 || e.Meta.Generation != 2 {
		t.Errorf("generation is %d and %d, want the deletion's, 2", e.Generation, e.Meta.Generation)
	}
	later := spec("a", 6, deleting)
	later.DeletionTimestamp = &metav1.Time{Time: dusk.Add(time.Hour)}
	b.put(t, later, inbox.Deletion, keyOf("a"))
	if e := b.get(t, keyOf("a")); e.Generation != 6 || !e.Deleting.Time.Equal(dusk) {
		t.Errorf("held is generation %d, deleted at %v; want 6, at the first time", e.Generation, e.Deleting)
	}
	if again := b.get(t, keyOf("a")).Received; !deleted.After(applied) || !again.Equal(deleted) {
		t.Errorf("the spec came at %v, the deletion at %v, and again at %v", applied, deleted, again)
	}
}

func TestANameWithAnotherUID(t *testing.T) {
	b := watch(nil)
	old, fresh := keyOf("old"), keyOf("new")
	b.put(t, spec("old", 7, named("lamp")), inbox.Added, old)
	wantSuperseded(t, b.put(t, spec("new", 1, named("lamp")), inbox.Added, fresh, old), old)
	if _, ok := b.Get(old); ok {
		t.Error("the old work is still held")
	}
	b.wantHolder(t, "hub", "lamp", fresh)
	b.put(t, spec("old", 7, deleting), inbox.Unknown)
	wantSuperseded(t, b.put(t, spec("new", 2, named("lamp")), inbox.Replaced, fresh))
	if b.Len() != 1 {
		t.Errorf("%d works are held", b.Len())
	}
}

// TestANameOfADeletedWork: a deletion is final even if another work has the name.
func TestANameOfADeletedWork(t *testing.T) {
	b := watch(nil)
	old, fresh := keyOf("old"), keyOf("new")
	b.put(t, spec("old", 7, named("lamp")), inbox.Added, old)
	b.put(t, spec("old", 7, deleting), inbox.Deletion, old)
	wantSuperseded(t, b.put(t, spec("new", 1, named("lamp")), inbox.Added, fresh))
	if b.get(t, old).Deleting == nil {
		t.Error("the deletion is gone")
	}
	b.put(t, spec("old", 8, deleting), inbox.Deletion, old)
	b.wantHolder(t, "hub", "lamp", fresh)
	b.Forget(old)
	b.wantHolder(t, "hub", "lamp", fresh)
	b.Forget(fresh)
	if e, ok := b.ByName("hub", "lamp"); ok {
		t.Errorf("the name is held by %v", e)
	}
}

func TestAWorkKeepsItsName(t *testing.T) {
	b := watch(nil)
	b.put(t, spec("a", 1, named("lamp")), inbox.Added, keyOf("a"))
	b.put(t, spec("b", 1, named("beam")), inbox.Added, keyOf("b"))
	wantSuperseded(t, b.put(t, spec("a", 2, named("beam")), inbox.Replaced, keyOf("a")))
	if e := b.get(t, keyOf("a")); e.Meta.Name != "lamp" {
		t.Errorf("the work is called %s now", e.Meta.Name)
	}
	b.wantHolder(t, "hub", "beam", keyOf("b"))
}

// TestSourcesAreApart: two sources own works of one name, and one sends the other's UID.
func TestSourcesAreApart(t *testing.T) {
	b := watch(nil)
	foe := inbox.Key{Source: "foe", UID: uidOf("a")}
	b.put(t, spec("a", 3), inbox.Added, keyOf("a"))
	b.put(t, spec("a", 1, from("foe"), holding("trap")), inbox.Added, foe)
	b.put(t, spec("a", 9, from("foe"), deleting), inbox.Deletion, foe)
	if e := b.get(t, keyOf("a")); e.Generation != 3 || e.Deleting != nil || manifests(e) != "lamp" || e.Meta.Labels[workv1.OriginalSourceLabelKey] != "hub" {
		t.Errorf("the other source's events changed the work to %+v", e)
	}
	for source, want := range map[wire.SourceID]inbox.Key{"hub": keyOf("a"), "foe": foe} {
		b.wantHolder(t, source, "a", want)
	}
	if got := b.Sources(); len(got) != 2 {
		t.Errorf("sources are %v", got)
	}
	if got := b.Versions("foe"); !slices.Equal(got, []wire.SpecVersion{{UID: "uid-a", Generation: 9}}) {
		t.Errorf("versions of foe are %v", got)
	}
	if got := b.Keys(); len(got) != 2 {
		t.Errorf("versions of all are %v", got)
	}
	if got := b.Versions("nobody"); len(got) != 0 {
		t.Errorf("versions of nobody are %v", got)
	}
	if _, ok := b.ByName("nobody", "a"); ok {
		t.Error("nobody has a work")
	}
	b.Forget(foe)
	if b.get(t, keyOf("a")); len(b.Sources()) != 1 {
		t.Errorf("sources are %v", b.Sources())
	}
}

func TestRefusedSpecs(t *testing.T) {
	b := watch(nil)
	a := keyOf("a")
	refuse := func(failure *wire.DecodeError, want inbox.Verdict, changed ...inbox.Key) {
		t.Helper()
		b.changed()
		acks := 0
		if got := b.Refuse(failure, func(err error) {
			if err == nil {
				acks++
			}
		}); got.Verdict != want {
			t.Errorf("Refuse = %v, want %v", got.Verdict, want)
		}
		if got := b.changed(); !slices.Equal(got, changed) {
			t.Errorf("told of %v, want %v", got, changed)
		}
		if acks != 1 {
			t.Errorf("held was called %d times", acks)
		}
	}
	refuse(&wire.DecodeError{Err: errorText("x")}, inbox.Nameless)
	if b.Len() != 0 {
		t.Error("a work without a name is held")
	}

	// What was good stays in force.
	b.put(t, spec("a", 1), inbox.Added, a)
	refuse(undecodable("a", 2, "no kind"), inbox.Refused, a)
	e := b.get(t, a)
	if e.Generation != 1 || manifests(e) != "lamp" || e.Refusal == nil || *e.Refusal != (inbox.Refusal{Generation: 2, Message: "no kind"}) {
		t.Errorf("held is %+v, refusal %+v", e, e.Refusal)
	}
	if got := b.Versions("hub"); !slices.Equal(got, []wire.SpecVersion{{UID: "uid-a", Generation: 1}}) {
		t.Errorf("versions are %v: the source would not send the refused spec again", got)
	}
	refuse(undecodable("a", 2, "no kind"), inbox.Same)
	b.put(t, spec("a", 3), inbox.Replaced, a)
	if e := b.get(t, a); e.Refusal != nil || e.Generation != 3 {
		t.Errorf("held is %+v, refusal %+v", e, e.Refusal)
	}
	refuse(undecodable("a", 2, "no kind"), inbox.Older)

	// A work that was never good is held to be reported, and takes no name from one that is.
	b.put(t, spec("c", 1, named("lamp")), inbox.Added, keyOf("c"))
	failure := undecodable("d", 4, "no kind")
	failure.Spec.Meta.Name = "lamp"
	refuse(failure, inbox.Refused, keyOf("d"))
	if e := b.get(t, keyOf("d")); e.HasSpec() || e.Refusal == nil || e.Generation != 0 || e.Meta.Name != "lamp" {
		t.Errorf("held is %+v", e)
	}
	b.wantHolder(t, "hub", "lamp", keyOf("c"))
	wantSuperseded(t, b.put(t, spec("d", 5, named("lamp")), inbox.Replaced, keyOf("d"), keyOf("c")), keyOf("c"))

	// A free name is taken, so that what an earlier agent has applied is not taken for nobody's.
	refuse(undecodable("e", 1, "no kind"), inbox.Refused, keyOf("e"))
	b.wantHolder(t, "hub", "e", keyOf("e"))

	b.put(t, spec("d", 5, deleting), inbox.Deletion, keyOf("d"))
	refuse(undecodable("d", 6, "x"), inbox.Late)
	if !b.Forget(keyOf("d")) {
		t.Error("Forget does not say that a spec came meanwhile")
	}
}

// TestUnopened: a spec that cannot be opened is refused with a reason of its own, and its source is one
// to ask again once there is a key.
func TestUnopened(t *testing.T) {
	b := watch(nil)
	for reason, want := range map[sealing.Reason]string{sealing.UnknownKey: workv1.ReasonNoUnsealKey, sealing.Invalid: workv1.ReasonInvalidSeal} {
		failure := undecodable("a", 2, "")
		failure.Err = &sealing.OpenError{Reason: reason, KeyID: "k"}
		b.Refuse(failure, nil)
		if got := b.get(t, keyOf("a")).Refusal; got == nil || got.Reason != want {
			t.Errorf("%s: refused with %+v, want reason %s", reason, got, want)
		}
	}
	b.Refuse(undecodable("b", 1, "no kind"), nil)
	if got := b.Closed(); !slices.Equal(got, []wire.SourceID{"hub"}) {
		t.Errorf("Closed = %v", got)
	}
	b.Put(spec("a", 3), nil)
	if got := b.Closed(); len(got) != 0 {
		t.Errorf("Closed = %v once the work is opened", got)
	}
}

func TestRefusalMessageIsBounded(t *testing.T) {
	b := watch(nil)
	b.Refuse(undecodable("a", 1, strings.Repeat("ä", 5000)), nil)
	got := b.get(t, keyOf("a")).Refusal.Message
	if len(got) > 4096 || len(got) < 4090 || !strings.HasSuffix(got, "ä…") {
		t.Errorf("the message has %d bytes and ends in %q", len(got), got[len(got)-8:])
	}
}

func TestMetaLeavesOutWhatNobodyReads(t *testing.T) {
	in := spec("a", 1, func(in *wire.Spec) {
		in.Meta.Annotations["kubectl.kubernetes.io/last-applied-configuration"] = strings.Repeat("x", 70000)
		in.Meta.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
		in.Meta.ResourceVersion = "12"
		in.Meta.CreationTimestamp = metav1.NewTime(dawn)
	})
	got := inbox.Meta(in)
	if len(got.Annotations) != 2 || got.ManagedFields != nil || got.ResourceVersion != "" || !got.CreationTimestamp.Time.Equal(dawn) {
		t.Errorf("Meta = %+v", got)
	}
	if len(in.Meta.Annotations) != 2 || len(in.Meta.Labels) != 1 {
		t.Errorf("Meta changed the event: %+v", in.Meta)
	}
}

// TestRecoveredWork is known by what was applied for it only.
func TestRecoveredWork(t *testing.T) {
	b := watch(nil)
	a := keyOf("a")
	for range 2 {
		if !b.Recover(a, "quay", "lamp", inbox.Recovered{}) {
			t.Fatal("the work is not held")
		}
	}
	e := b.get(t, a)
	if e.HasSpec() || e.Deleting != nil || e.Refusal != nil || e.Meta.Name != "lamp" || e.Meta.Labels[workv1.OriginalSourceLabelKey] != "hub" {
		t.Errorf("held is %+v", e)
	}
	if got := b.Versions("hub"); !slices.Equal(got, []wire.SpecVersion{{UID: "uid-a"}}) {
		t.Errorf("versions are %v: the source would not send the work", got)
	}
	if got := b.changed(); len(got) != 0 {
		t.Errorf("told of %v", got)
	}
	if b.Recover(keyOf("b"), "quay", "lamp", inbox.Recovered{}) {
		t.Error("two works of one name are held")
	}

	// Its source sends it, or says that it is gone.
	b.put(t, spec("a", 3, named("lamp")), inbox.Replaced, a)
	if !b.Recover(a, "quay", "lamp", inbox.Recovered{}) || !b.get(t, a).HasSpec() {
		t.Error("a work that is held did not stay as it is")
	}
	b.Recover(keyOf("c"), "quay", "beam", inbox.Recovered{})
	b.put(t, spec("c", 0, bare, deleting), inbox.Disowned)
	b.decided(t, "hub", "", keyOf("c"))
	if e := b.get(t, keyOf("c")); e.Meta.Name != "beam" {
		t.Errorf("held is %+v", e)
	}
	// A new work of the name takes it over.
	b.Recover(keyOf("d"), "quay", "mast", inbox.Recovered{})
	wantSuperseded(t, b.put(t, spec("e", 1, named("mast")), inbox.Added, keyOf("e"), keyOf("d")), keyOf("d"))
}

// opened returns a store that runs until the returned function is called.
func opened(t *testing.T, dir string) (*statestore.Store, func()) {
	t.Helper()
	s, err := store.Open(store.Config{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	kit.NoError(t, err)
	return s, kit.Run(t, "the store", func(ctx context.Context) error { return store.Run(ctx, s) })
}

func TestWorksOutliveTheAgent(t *testing.T) {
	dir := t.TempDir()
	s, stop := opened(t, dir)
	b := watch(s)
	acked := make(chan error, 10)
	for _, in := range []*wire.Spec{
		spec("a", 1), spec("a", 2, holding("beam", "lamp"), func(in *wire.Spec) {
			in.Trace = "{}"
			in.Bundle.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
			in.Bundle.Executer = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{Type: "ServiceAccount"}}
		}),
		spec("b", 1), spec("b", 1, deleting),
		spec("c", 1), spec("c2", 1, named("c")),
		spec("a", 1, from("foe")),
		spec("gone", 1),
	} {
		b.Put(in, func(err error) { acked <- err })
	}
	b.Forget(keyOf("gone"))
	b.Refuse(undecodable("d", 3, "no kind"), func(err error) { acked <- err })
	for range 9 {
		if err := kit.Receive(t, "acknowledgement", acked); err != nil {
			t.Errorf("held with %v", err)
		}
	}
	want := map[inbox.Key]*inbox.Entry{}
	for _, key := range b.Keys() {
		want[key] = b.get(t, key)
	}
	stop()

	s, _ = opened(t, dir)
	b = watch(s)
	kit.NoError(t, b.Load())
	got := map[inbox.Key]*inbox.Entry{}
	for _, key := range b.Keys() {
		got[key] = b.get(t, key)
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(inbox.Entry{}, "Received")); diff != "" {
		t.Errorf("works differ after a restart (-want +got):\n%s", diff)
	}
	if len(want) != 5 || len(b.changed()) != 5 {
		t.Errorf("%d works are held, want 5", len(want))
	}
	// What was known stays known.
	b.Put(spec("b", 2), nil)
	if b.get(t, keyOf("b")).Deleting == nil {
		t.Error("the deletion did not outlive the agent")
	}
	b.wantHolder(t, "hub", "c", keyOf("c2"))
}

// TestNothingIsHeldBeforeItIsOnDisk: neither the event nor its duplicate, and no worker is told of it.
func TestNothingIsHeldBeforeItIsOnDisk(t *testing.T) {
	dir := t.TempDir()
	s, err := store.Open(store.Config{Dir: dir})
	kit.NoError(t, err)
	b := watch(s)
	acked := make(chan error, 2)
	for _, want := range []inbox.Verdict{inbox.Added, inbox.Same} {
		if change := b.Put(spec("a", 1), func(err error) { acked <- err }); change.Verdict != want {
			t.Errorf("Put = %v, want %v", change.Verdict, want)
		}
	}
	select {
	case err := <-acked:
		t.Fatalf("held (%v) while the store does not run", err)
	default:
	}
	if got := b.changed(); len(got) != 0 || !b.Writing(keyOf("a")) || b.Writing(keyOf("b")) {
		t.Errorf("told of %v, or may take it for held: a crash now would lose what the worker applies, and the spec before would undo it", got)
	}
	kit.NoError(t, s.Close())
	for range 2 {
		if err := <-acked; !errors.Is(err, statestore.ErrClosed) {
			t.Errorf("held with %v, want ErrClosed", err)
		}
	}
}

func TestLoadLeavesOutWhatItCanNotRead(t *testing.T) {
	dir := t.TempDir()
	s, stop := opened(t, dir)
	b := watch(s)
	b.Put(spec("a", 1), nil)

	for key, text := range map[string]string{"hub\x00x": "no JSON", "hub\x00y": `{"source":"hub"}`} {
		s.Put(store.Specs, key, func() ([]byte, error) { return []byte(text), nil })
	}
	b.Put(spec("z", 1), nil)
	stop()
	s, stop = opened(t, dir)
	var moved []byte
	err := s.Each(store.Specs, func(k string, v []byte) error {
		if k == keyOf("z").StoreKey() {
			moved = slices.Clone(v)
		}
		return nil
	})
	kit.NoError(t, err)
	s.Put(store.Specs, "foe\x00uid-z", func() ([]byte, error) { return moved, nil })
	stop()

	s, _ = opened(t, dir)
	b = watch(s)
	kit.NoError(t, b.Load())
	keys := b.Keys()
	slices.SortFunc(keys, func(x, y inbox.Key) int { return strings.Compare(x.String(), y.String()) })
	if !slices.Equal(keys, []inbox.Key{keyOf("a"), keyOf("z")}) {
		t.Errorf("held are %v", keys)
	}
}

// TestManyAtOnce has several sources' events arrive while workers read.
func TestManyAtOnce(t *testing.T) {
	s, _ := opened(t, t.TempDir())
	b := watch(s)
	var group, acks sync.WaitGroup
	for i := range 4 {
		source := wire.SourceID(fmt.Sprint("source-", i))
		group.Go(func() {
			for n := range 200 {
				name := fmt.Sprint(n % 20)
				acks.Add(1)
				b.Put(spec(name, wire.Generation(n), from(source), holding(fmt.Sprint(n))), func(error) { acks.Done() })
				if n%50 == 49 {
					key := inbox.Key{Source: source, UID: uidOf(name)}
					b.Put(spec(name, wire.Generation(n), from(source), deleting), nil)
					b.Forget(key)
				}
			}
		})
		group.Go(func() {
			for range 100 {
				b.Versions(source)
				for _, key := range b.Keys() {
					if e, ok := b.Get(key); ok && !e.HasSpec() {
						t.Errorf("work %v has no manifests", key)
					}
				}
			}
		})
	}
	group.Wait()
	acks.Wait()
	if b.Len() != len(b.Keys()) {
		t.Errorf("Len is %d of %d", b.Len(), len(b.Keys()))
	}
}

// BenchmarkPut: an event costs the same whatever the number of works held.
func BenchmarkPut(b *testing.B) {
	for _, works := range []int{100, 10000} {
		b.Run(fmt.Sprint(works), func(b *testing.B) {
			box := inbox.New(inbox.Config{Changed: func(inbox.Key) {}})
			for i := range works {
				box.Put(spec(fmt.Sprint(i), 1), nil)
			}
			in := spec("7", 1)
			b.ReportAllocs()
			for b.Loop() {
				in.Generation++
				box.Put(in, nil)
			}
		})
	}
}

func TestIsNewest(t *testing.T) {
	b := watch(nil)
	b.Put(spec("a", 2), nil)
	for generation, want := range map[wire.Generation]bool{1: false, 2: true, 3: true} {
		if got := b.IsNewest(keyOf("a"), generation); got != want {
			t.Errorf("generation %d, while 2 is held: %t", generation, got)
		}
	}
	b.Refuse(undecodable("a", 3, "no kind"), nil)
	if b.IsNewest(keyOf("a"), 2) || b.IsNewest(keyOf("b"), 9) {
		t.Error("a generation before one that was refused is the newest, or one of a work that is not held")
	}
}
