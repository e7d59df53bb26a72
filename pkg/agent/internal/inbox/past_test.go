package inbox

import (
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/wire"
)

func TestPast(t *testing.T) {
	b := New(Config{Changed: func(Key) {}})
	b.past.Add(Key{"hub", "a"}, pastWork{deletion: 4})
	for name, c := range map[string]struct {
		in   wire.Spec
		want bool
	}{
		"the last spec":             {wire.Spec{UID: "a", Source: "hub", Generation: 3, SourceIdentity: "one", Action: wire.Update}, true},
		"as an answer":              {wire.Spec{UID: "a", Source: "hub", Generation: 3, SourceIdentity: "one", Action: wire.ResyncResponse}, true},
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
		b.past.Add(Key{"hub", types.UID(fmt.Sprint(i))}, pastWork{deletion: 1})
		b.past.Add(Key{"hub", types.UID(fmt.Sprint(i))}, pastWork{deletion: 2})
	}
	if b.past.Len() != maxPast {
		t.Errorf("%d deletions are remembered", b.past.Len())
	}
}

// TestDeletedWorkStaysDeleted: an old spec does not bring a deleted work back, nor does the answer to a question that was asked before it was deleted, or
// to one about others. The answer to a question that was asked since does.
func TestDeletedWorkStaysDeleted(t *testing.T) {
	for name, c := range map[string]struct {
		action wire.Action
		ask    func(*Inbox)
		want   Verdict
	}{
		"by itself":                   {wire.Update, func(b *Inbox) { b.Expect("hub", nil) }, Older},
		"asked before":                {wire.ResyncResponse, func(*Inbox) {}, Older},
		"asked for all since":         {wire.ResyncResponse, func(b *Inbox) { b.Expect("hub", nil) }, Added},
		"all sources were asked":      {wire.ResyncResponse, func(b *Inbox) { b.Expect("", nil) }, Added},
		"another source was asked":    {wire.ResyncResponse, func(b *Inbox) { b.Expect("sdk", nil) }, Older},
		"asked for the work since":    {wire.ResyncResponse, func(b *Inbox) { b.Expect("hub", []wire.SpecVersion{{UID: "u"}}) }, Added},
		"by itself, asked for since":  {wire.Update, func(b *Inbox) { b.Expect("hub", []wire.SpecVersion{{UID: "u"}}) }, Older},
		"asked for another one since": {wire.ResyncResponse, func(b *Inbox) { b.Expect("hub", []wire.SpecVersion{{UID: "v"}}) }, Older},
	} {
		b := New(Config{Changed: func(Key) {}})
		b.Expect("hub", nil)
		b.Put(specOf(1), nil)
		b.Put(deletionOf(2), nil)
		b.Forget(Key{"hub", "u"})
		c.ask(b)
		again := specOf(1)
		again.Action = c.action
		if c.want == Older {
			if change := b.Refuse(&wire.DecodeError{Spec: again, Err: errors.New("not readable")}, nil); change.Verdict != Older {
				t.Errorf("%s: one that cannot be read is %s", name, change.Verdict)
			}
		}
		if change := b.Put(again, nil); change.Verdict != c.want {
			t.Errorf("%s: it is %s, want %s", name, change.Verdict, c.want)
		}
	}
}
