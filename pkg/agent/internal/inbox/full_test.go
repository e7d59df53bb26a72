package inbox_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// sized returns a spec of a work with this many bytes of manifests.
func sized(source wire.SourceID, name string, generation wire.Generation, bytes int) *wire.Spec {
	raw := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"k":%q}}`, strings.Repeat("x", bytes))
	return &wire.Spec{
		UID: uidOf(name), Generation: generation, Source: source, Cluster: "c1", Meta: metav1.ObjectMeta{Name: name, Namespace: "c1", UID: uidOf(name)},
		Bundle: &wire.Bundle{Manifests: []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(raw)}}}},
	}
}

// TestMaxSource: beyond what may be held of a source, new and larger specs are refused, what is held stays in force, other
// sources are not concerned, refusals have a bound of their own, also after a restart, and room that is made is reported once.
func TestMaxSource(t *testing.T) {
	dir := t.TempDir()
	open := func() (*inbox.Inbox, func()) {
		state, closeState := opened(t, dir)
		box := inbox.New(inbox.Config{Store: state, MaxSource: 100 << 10, Changed: func(inbox.Key) {}})
		kit.NoError(t, box.Load())
		return box, closeState
	}
	box, closeState := open()
	put := func(spec *wire.Spec, want inbox.Verdict) {
		t.Helper()
		if got := box.Put(spec, nil); got.Verdict != want {
			t.Fatalf("%s of %s, generation %d: %v, want %v", spec.Meta.Name, spec.Source, spec.Generation, got.Verdict, want)
		}
	}
	put(sized("hub", "a", 1, 60<<10), inbox.Added)
	put(sized("hub", "b", 1, 30<<10), inbox.Added)
	put(sized("hub", "c", 1, 20<<10), inbox.Refused)
	put(sized("hub", "c", 1, 20<<10), inbox.Same)
	put(sized("hub", "b", 2, 50<<10), inbox.Refused)
	put(sized("other", "c", 1, 90<<10), inbox.Added)
	put(sized("hub", "small", 1, 1<<10), inbox.Added)
	e, _ := box.Get(inbox.Key{Source: "hub", UID: uidOf("b")})
	if e.Generation != 1 || !e.HasSpec() || e.Refusal.Reason != workv1.ReasonTooManySpecs || !strings.Contains(e.Refusal.Message, "source hub as it may, 102400 bytes") {
		t.Errorf("b is %+v, refusal %+v", e.Generation, e.Refusal)
	}
	if box.RoomAgain("hub") {
		t.Error("there is room although nothing has gone")
	}
	refused := 0
	for ; box.Put(sized("hub", fmt.Sprint("more-", refused), 1, 20<<10), nil).Verdict == inbox.Refused; refused++ {
	}
	if refused < 5 || refused > 25 {
		t.Errorf("%d refusals are held, want those that fit into 25 KiB", refused)
	}

	closeState()
	box, closeState = open()
	put(sized("hub", "late", 1, 20<<10), inbox.Full)
	for i := range refused {
		box.Forget(inbox.Key{Source: "hub", UID: uidOf(fmt.Sprint("more-", i))})
	}
	put(sized("hub", "a", 2, 10<<10), inbox.Replaced)
	if !box.RoomAgain("hub") || box.RoomAgain("hub") || box.RoomAgain("other") || box.RoomAgain("none") {
		t.Error("want room of hub, once")
	}
	put(sized("hub", "b", 2, 50<<10), inbox.Replaced)
	closeState()
}

// TestRoomForWhatWasRefused: what is free is room only if something that was refused fits, also if it was refused twice.
func TestRoomForWhatWasRefused(t *testing.T) {
	state, closeState := opened(t, t.TempDir())
	defer closeState()
	box := inbox.New(inbox.Config{Store: state, MaxSource: 100 << 10, Changed: func(inbox.Key) {}})
	box.Put(sized("hub", "a", 1, 60<<10), nil)
	for _, want := range []inbox.Verdict{inbox.Refused, inbox.Same} {
		if got := box.Put(sized("hub", "b", 1, 60<<10), nil).Verdict; got != want {
			t.Fatalf("b is %v, want %v", got, want)
		}
		if box.RoomAgain("hub") {
			t.Errorf("%v: 40 KiB are room for 60", want)
		}
	}
	box.Forget(inbox.Key{Source: "hub", UID: uidOf("a")})
	if !box.RoomAgain("hub") || box.RoomAgain("hub") {
		t.Error("want room, once")
	}
	if got := box.Put(sized("hub", "b", 1, 60<<10), nil).Verdict; got != inbox.Replaced {
		t.Errorf("b is %v", got)
	}
}

// TestMaxSourceCountsOptions: a spec of one small manifest counts with its options.
func TestMaxSourceCountsOptions(t *testing.T) {
	for name, change := range map[string]func(*wire.Spec){
		"orphaning rules": func(spec *wire.Spec) {
			rules := make([]workv1.OrphaningRule, 1500)
			spec.Bundle.DeleteOption = &workv1.DeleteOption{SelectivelyOrphan: &workv1.SelectivelyOrphan{OrphaningRules: rules}}
		},
		"texts of orphaning rules": func(spec *wire.Spec) {
			rules := slices.Repeat([]workv1.OrphaningRule{{Resource: "configmaps", Namespace: "default", Name: strings.Repeat("n", 40)}}, 750)
			spec.Bundle.DeleteOption = &workv1.DeleteOption{SelectivelyOrphan: &workv1.SelectivelyOrphan{OrphaningRules: rules}}
		},
		"executor": func(spec *wire.Spec) {
			spec.Bundle.Executer = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
				ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Name: strings.Repeat("n", 90<<10)},
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			state, closeState := opened(t, t.TempDir())
			defer closeState()
			box := inbox.New(inbox.Config{Store: state, MaxSource: 100 << 10, Changed: func(inbox.Key) {}})
			for i, want := range []inbox.Verdict{inbox.Added, inbox.Refused} {
				spec := sized("hub", fmt.Sprint("work-", i), 1, 10)
				change(spec)
				if got := box.Put(spec, nil).Verdict; got != want {
					t.Errorf("work %d is %v, want %v", i, got, want)
				}
			}
		})
	}
}
