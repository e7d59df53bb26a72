package inbox_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/wire"
)

const (
	tooFew  = "SourceKnowsTooFew"
	changed = "SourceIdentityChanged"
)

func TestDecideHold(t *testing.T) {
	for _, c := range []struct {
		disowned, works int
		want            string
	}{
		{0, 0, ""}, {0, 100, ""},
		{1, 1, ""}, {2, 2, ""}, // as before: of so few, any is a large share
		{3, 3, tooFew}, {3, 14, tooFew}, {3, 15, ""}, {3, 16, ""},
		{20, 100, ""}, {21, 100, tooFew}, {100, 100, tooFew},
		{2000, 10_000, ""}, {2001, 10_000, tooFew},
	} {
		if got := inbox.DecideHold(inbox.Answer{Disowned: c.disowned, Works: c.works}); got != c.want {
			t.Errorf("%d of %d disowned: %q, want %q", c.disowned, c.works, got, c.want)
		}
	}
}

// several puts specs of works 0 to n-1, and returns their keys.
func (w *watched) several(t *testing.T, n int, changes ...func(*wire.Spec)) (keys []inbox.Key) {
	t.Helper()
	for i := range n {
		name := fmt.Sprint(i)
		w.put(t, spec(name, 7, changes...), inbox.Added, keyOf(name))
		keys = append(keys, keyOf(name))
	}
	return keys
}

func (w *watched) disown(t *testing.T, want inbox.Verdict, keys ...inbox.Key) {
	t.Helper()
	for _, key := range keys {
		w.put(t, spec(string(key.UID)[len("uid-"):], 7, bare, deleting), want)
	}
}

func TestFewDisownedWorksAreDeleted(t *testing.T) {
	b := watch(nil)
	keys := b.several(t, 10)
	b.disown(t, inbox.Disowned, keys[:2]...)
	b.disown(t, inbox.Disowned, keys[:2]...) // twice is no more
	b.decided(t, "hub", "", keys[:2]...)
	for i, key := range keys {
		if e := b.get(t, key); (e.Deleting != nil) != (i < 2) || e.Hold != nil {
			t.Errorf("held is %+v", e)
		}
	}
	// The same answer goes on: with those before they are too many.
	b.disown(t, inbox.Disowned, keys[2])
	b.decided(t, "hub", tooFew, keys[2])
	// In the next answer one is few again, but what was held stays so.
	b.Asked("hub")
	b.disown(t, inbox.Same, keys[2])
	b.disown(t, inbox.Disowned, keys[3])
	b.decided(t, "hub", "", keys[3])
	if b.get(t, keys[2]).Hold == nil || b.Held() != 1 {
		t.Errorf("%d works are held", b.Held())
	}
}

// TestWhatIsDisowned: the share of disowned works is of those that are not being deleted, and of one answer.
func TestWhatIsDisowned(t *testing.T) {
	for name, c := range map[string]struct {
		works, deleting int
		between         func(b *watched, keys []inbox.Key)
		want            string
	}{
		"three of many":                 {works: 16},
		"most others are being deleted": {works: 16, deleting: 8, want: tooFew},
		"one is known after all": {works: 10, between: func(b *watched, keys []inbox.Key) {
			b.put(t, spec("0", 7), inbox.Same)
		}},
		"a question meanwhile": {works: 10, want: tooFew, between: func(b *watched, _ []inbox.Key) { b.Asked("hub") }},
	} {
		t.Run(name, func(t *testing.T) {
			b := watch(nil)
			keys := b.several(t, c.works)
			for i := range c.deleting {
				b.put(t, spec(fmt.Sprint(i+8), 7, deleting), inbox.Deletion, keys[i+8])
			}
			b.disown(t, inbox.Disowned, keys[:2]...)
			if c.between != nil {
				c.between(b, keys)
			}
			b.disown(t, inbox.Disowned, keys[2])
			d := b.DecideDisowned("hub", time.Now().Add(inbox.AnswerQuiet))
			if d.Reason != c.want {
				t.Errorf("decided %+v, want reason %q", d, c.want)
			}
		})
	}
}

func TestManyDisownedWorksAreHeld(t *testing.T) {
	b := watch(nil)
	keys := b.several(t, 6)
	foe := inbox.Key{Source: "foe", UID: uidOf("0")}
	b.put(t, spec("0", 1, from("foe")), inbox.Added, foe)
	b.disown(t, inbox.Disowned, keys...)
	// Before the decision: one is known after all, one is deleted, and one loses its name.
	b.put(t, spec("0", 7), inbox.Same)
	b.put(t, spec("1", 7, deleting), inbox.Deletion, keys[1])
	b.put(t, spec("new", 1, named("2")), inbox.Added, keyOf("new"), keys[2])
	b.decided(t, "hub", tooFew, keys[3:]...)
	if b.Held() != 3 || b.get(t, keys[0]).Hold != nil || b.get(t, foe).Hold != nil {
		t.Errorf("%d works are held", b.Held())
	}
	e := b.get(t, keys[3])
	if e.Deleting != nil || *e.Hold != (inbox.Hold{Reason: tooFew, Generation: 7}) || manifests(e) != "lamp" {
		t.Errorf("held is %+v", e)
	}
	for _, version := range b.Versions("hub") {
		if want := wire.Generation(7); version.UID == keys[3].UID && version.Generation != 0 || version.UID == keys[0].UID && version.Generation != want {
			t.Errorf("asked for %+v: the source would not send the spec of a held work", version)
		}
	}

	// What ends a hold.
	b.put(t, spec("3", 7), inbox.Replaced, keys[3])
	b.put(t, spec("4", 7, deleting), inbox.Deletion, keys[4])
	b.put(t, spec("again", 1, named("5")), inbox.Added, keyOf("again"), keys[5])
	if b.Held() != 0 || b.get(t, keys[3]).Hold != nil || b.get(t, keys[4]).Hold != nil {
		t.Errorf("%d works are held", b.Held())
	}
	if b.Release(keys[3]) || b.Release(keyOf("nobody")) {
		t.Error("what is not held is released")
	}
}

func TestChangedIdentityHoldsAtOnce(t *testing.T) {
	b := watch(nil)
	a := keyOf("a")
	b.put(t, spec("a", 2, of("one")), inbox.Added, a)
	b.put(t, spec("a", 2, bare, deleting, of("two")), inbox.Held, a)
	if e := b.get(t, a); e.Hold == nil || e.Hold.Reason != changed || e.SourceIdentity != "one" {
		t.Errorf("held is %+v", e)
	}
	if d := b.DecideDisowned("hub", time.Now()); d.Wait <= 0 {
		t.Errorf("amid the answer the decision is %+v", d)
	}
	for _, want := range []int{1, 0} { // it is told once
		if d := b.DecideDisowned("hub", time.Now().Add(inbox.AnswerQuiet)); d.Wait != 0 || d.Held != want || len(d.Keys) != 0 {
			t.Errorf("the decision is %+v, want %d works held", d, want)
		}
	}
	b.put(t, spec("a", 1, of("two")), inbox.Kept, a)
	if e := b.get(t, a); e.Hold != nil || e.Generation != 2 {
		t.Errorf("held is %+v", e)
	}
	b.put(t, spec("a", 2, bare, deleting, of("two")), inbox.Held, a)
	if !b.Release(a) || !slices.Equal(b.changed(), []inbox.Key{a}) {
		t.Error("the work is not released, or nobody is told")
	}
	if e := b.get(t, a); e.Deleting == nil || e.Meta.DeletionTimestamp == nil || e.Hold != nil || b.Held() != 0 {
		t.Errorf("held is %+v", e)
	}
}

// TestIdentityIsLearnt from a source that had none, or that was given another one and knows the
// work.
func TestIdentityIsLearnt(t *testing.T) {
	b := watch(nil)
	a := keyOf("a")
	b.put(t, spec("a", 2), inbox.Added, a)
	if b.Identified("hub", "one", []types.UID{a.UID, "nobody"}) {
		t.Error("a source that knows all works is to be asked")
	}
	if got := b.get(t, a).SourceIdentity; got != "one" {
		t.Errorf("the identity is %q", got)
	}
	if !b.Identified("hub", "two", nil) || b.Identified("hub2", "two", nil) {
		t.Error("only the source that may not know a work is to be asked")
	}
	b.put(t, spec("a", 2, of("two")), inbox.Same)
	b.put(t, spec("a", 3), inbox.Replaced, a) // it comes from where the identity is not known
	if got := b.get(t, a).SourceIdentity; got != "two" {
		t.Errorf("the identity is %q", got)
	}
}

// TestHoldOutlivesTheAgent with its state, and without by what the AppliedManifestWork says.
func TestHoldOutlivesTheAgent(t *testing.T) {
	dir := t.TempDir()
	s, stop := opened(t, dir)
	b := watch(s)
	a, c := keyOf("a"), keyOf("c")
	b.Put(spec("a", 2, of("one"), func(in *wire.Spec) { in.ContentHash = "h" }), nil)
	b.Put(spec("a", 2, bare, deleting, of("two")), nil)
	recovered := inbox.Recovered{SourceIdentity: "one", HeldReason: tooFew}
	b.Recover(c, "quay", "c", recovered)
	b.Put(spec("d", 2, of("one"), func(in *wire.Spec) { in.ContentHash = "h" }), nil)
	stop()

	s, _ = opened(t, dir)
	b = watch(s)
	if err := b.Load(); err != nil {
		t.Fatal(err)
	}
	b.Recover(a, "quay", "a", inbox.Recovered{})
	b.Recover(c, "quay", "c", recovered)
	if e := b.get(t, a); e.Hold == nil || e.Hold.Reason != changed || e.SourceIdentity != "one" || manifests(e) != "lamp" {
		t.Errorf("held is %+v", e)
	}
	if e := b.get(t, c); e.Hold == nil || e.Hold.Reason != tooFew || e.HasSpec() || b.Held() != 2 {
		t.Errorf("held is %+v, of %d", e, b.Held())
	}
	want := wire.SpecVersion{UID: "uid-d", Generation: 2, ContentHash: "h"}
	if got := b.Versions("hub"); len(got) != 3 || !slices.Contains(got, want) {
		t.Errorf("asked for %v", got)
	}
	b.Put(spec("c", 0, bare, deleting, of("two")), nil)
	b.Put(spec("c", 3), nil)
	if e := b.get(t, c); e.Hold != nil || !e.HasSpec() {
		t.Errorf("held is %+v", e)
	}
}

// TestDecisionOfNothing: no answer, no decision.
func TestDecisionOfNothing(t *testing.T) {
	b := watch(nil)
	b.Asked("hub")
	for range 2 {
		if d := b.DecideDisowned("hub", time.Now()); len(d.Keys) != 0 || d.Wait != 0 {
			t.Errorf("decided %+v", d)
		}
	}
}
