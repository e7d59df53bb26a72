package inbox

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/wire"
)

func TestPast(t *testing.T) {
	b := New(Config{Changed: func(Key) {}})
	b.past.Add(Key{"hub", "a"}, wire.Generation(4))
	for name, c := range map[string]struct {
		in   wire.Spec
		want bool
	}{
		"the last spec":             {wire.Spec{UID: "a", Source: "hub", Generation: 3, SourceIdentity: "one", Action: wire.Update}, true},
		"as an answer":              {wire.Spec{UID: "a", Source: "hub", Generation: 3, SourceIdentity: "one", Action: wire.ResyncResponse}, false},
		"not of Workwire":           {wire.Spec{UID: "a", Source: "hub", Generation: 3, Action: wire.Update}, false},
		"a later one, of that name": {wire.Spec{UID: "a", Source: "hub", Generation: 5, SourceIdentity: "one", Action: wire.Create}, false},
		"of another source":         {wire.Spec{UID: "a", Source: "sdk", Generation: 3, SourceIdentity: "one", Action: wire.Update}, false},
		"of another work":           {wire.Spec{UID: "b", Source: "hub", Generation: 3, SourceIdentity: "one", Action: wire.Update}, false},
	} {
		if got := b.isPast(&c.in); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
	for i := range 2 * maxPast {
		b.past.Add(Key{"hub", types.UID(fmt.Sprint(i))}, wire.Generation(1))
		b.past.Add(Key{"hub", types.UID(fmt.Sprint(i))}, wire.Generation(2))
	}
	if b.past.Len() != maxPast {
		t.Errorf("%d deletions are remembered", b.past.Len())
	}
}

// TestDeletedWorkStaysDeleted: an old spec does not bring a deleted work back, and the answer to a question does.
func TestDeletedWorkStaysDeleted(t *testing.T) {
	b := New(Config{Changed: func(Key) {}})
	b.Put(specOf(1), nil)
	b.Put(deletionOf(2), nil)
	b.Forget(Key{"hub", "u"})
	for _, want := range []Verdict{Older, Added} {
		again := specOf(1)
		if want == Added {
			again.Action = wire.ResyncResponse
		}
		if change := b.Put(again, nil); change.Verdict != want {
			t.Errorf("%s is %s, want %s", again.Action, change.Verdict, want)
		}
	}
}
