package inbox_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// spec returns a spec event of work uid of source hub, named like its UID.
func spec(uid string, generation wire.Generation, changes ...func(*wire.Spec)) *wire.Spec {
	in := &wire.Spec{
		UID: uidOf(uid), Generation: generation, Source: "hub", Cluster: "quay", Action: wire.Update,
		Meta: metav1.ObjectMeta{Name: uid, Namespace: "quay", UID: uidOf(uid), Generation: int64(generation),
			Labels: map[string]string{"team": "lights"}, Annotations: map[string]string{"note": "x"}},
		Bundle: bundle("lamp"),
	}
	for _, change := range changes {
		change(in)
	}
	return in
}

func bundle(names ...string) *wire.Bundle {
	b := &wire.Bundle{}
	for _, name := range names {
		raw := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"}}`
		b.Manifests = append(b.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(raw)}})
	}
	return b
}

func from(source wire.SourceID) func(*wire.Spec) { return func(in *wire.Spec) { in.Source = source } }
func named(name string) func(*wire.Spec)         { return func(in *wire.Spec) { in.Meta.Name = name } }
func of(identity string) func(*wire.Spec) {
	return func(in *wire.Spec) { in.SourceIdentity = identity }
}
func authoritative(in *wire.Spec) { in.Authoritative = true }
func holding(names ...string) func(*wire.Spec) {
	return func(in *wire.Spec) { in.Bundle = bundle(names...) }
}

// deleting makes the event a deletion.
func deleting(in *wire.Spec) {
	in.Action, in.Bundle = wire.Delete, nil
	if in.NoMetadata {
		in.Action = wire.ResyncResponse // to a question about what it does not have
	}
	in.DeletionTimestamp = &metav1.Time{Time: dusk}
}

// unasked has a source send a deletion by itself.
func unasked(in *wire.Spec) { in.Action = wire.Delete }

// bare takes the metadata away, as a source does for an id it does not have.
func bare(in *wire.Spec) {
	in.NoMetadata = true
	in.Meta = metav1.ObjectMeta{Name: string(in.UID), Namespace: "quay", UID: in.UID, Generation: int64(in.Generation)}
}

// undecodable returns the failure to decode a spec of that generation.
func undecodable(uid string, generation wire.Generation, why string) *wire.DecodeError {
	in := spec(uid, generation)
	in.Bundle = nil
	return &wire.DecodeError{Type: "t", Spec: in, Err: errorText(why)}
}

type errorText string

func (e errorText) Error() string { return string(e) }

// held returns the entry after the events.
func held(t *testing.T, events ...any) *inbox.Entry {
	t.Helper()
	b := inbox.New(inbox.Config{Changed: func(inbox.Key) {}})
	for _, event := range events {
		switch event := event.(type) {
		case *wire.Spec:
			b.Put(event, nil)
		case *wire.DecodeError:
			b.Refuse(event, nil)
		}
	}
	e, _ := b.Get(keyOf("a"))
	return e
}

func TestDecide(t *testing.T) {
	disowned := []any{spec("a", 2, of("one")), spec("a", 2, bare, deleting, of("two"))}
	for _, tc := range []struct {
		name string
		held []any
		in   *wire.Spec
		want inbox.Verdict
	}{
		{"unknown work", nil, spec("a", 1), inbox.Added},
		{"unknown work, no versions", nil, spec("a", 0), inbox.Added},
		{"unknown work, bare", nil, spec("a", 1, bare), inbox.Added},
		{"deletion of an unknown work", nil, spec("a", 1, deleting), inbox.Unknown},
		{"bare deletion of an unknown work", nil, spec("a", 1, bare, deleting), inbox.Unknown},

		{"later generation", []any{spec("a", 1)}, spec("a", 2), inbox.Replaced},
		{"much later generation", []any{spec("a", 1)}, spec("a", 1<<40), inbox.Replaced},
		{"earlier generation", []any{spec("a", 2)}, spec("a", 1, holding("other")), inbox.Older},
		{"no versions any more", []any{spec("a", 2)}, spec("a", 0), inbox.Replaced},
		{"versions from now on", []any{spec("a", 0)}, spec("a", 1), inbox.Replaced},
		{"twice", []any{spec("a", 2)}, spec("a", 2), inbox.Same},
		{"twice without versions", []any{spec("a", 0)}, spec("a", 0), inbox.Same},
		{"without versions, another spec", []any{spec("a", 0)}, spec("a", 0, holding("other")), inbox.Replaced},
		{"twice, as resync response", []any{spec("a", 2)}, spec("a", 2, func(in *wire.Spec) { in.Action = wire.ResyncResponse }), inbox.Same},
		{"twice, bare", []any{spec("a", 2)}, spec("a", 2, bare), inbox.Same},
		{"twice, other resource version", []any{spec("a", 2)}, spec("a", 2, func(in *wire.Spec) { in.Meta.ResourceVersion = "77" }), inbox.Same},
		{"twice, other trace", []any{spec("a", 2)}, spec("a", 2, func(in *wire.Spec) { in.Trace = "{}" }), inbox.Same},
		{"same generation, another manifest", []any{spec("a", 2)}, spec("a", 2, holding("other")), inbox.Replaced},
		{"same generation, one manifest more", []any{spec("a", 2)}, spec("a", 2, holding("lamp", "other")), inbox.Replaced},
		{"same generation, another label", []any{spec("a", 2)},
			spec("a", 2, func(in *wire.Spec) { in.Meta.Labels = map[string]string{"team": "sails"} }), inbox.Replaced},
		{"same generation, no labels", []any{spec("a", 2)}, spec("a", 2, func(in *wire.Spec) { in.Meta.Labels = nil }), inbox.Replaced},
		{"same generation, another annotation", []any{spec("a", 2)},
			spec("a", 2, func(in *wire.Spec) { in.Meta.Annotations = map[string]string{"note": "y"} }), inbox.Replaced},
		{"same generation, kubectl's annotation", []any{spec("a", 2)}, spec("a", 2, func(in *wire.Spec) {
			in.Meta.Annotations = map[string]string{"note": "x", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
		}), inbox.Same},
		{"same generation, deleteOption", []any{spec("a", 2)}, spec("a", 2, func(in *wire.Spec) {
			in.Bundle.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
		}), inbox.Replaced},
		{"same generation, manifestConfigs", []any{spec("a", 2)}, spec("a", 2, func(in *wire.Spec) {
			in.Bundle.ManifestConfigs = []workv1.ManifestConfigOption{{}}
		}), inbox.Replaced},
		{"same generation, executor", []any{spec("a", 2)}, spec("a", 2, func(in *wire.Spec) {
			in.Bundle.Executer = &workv1.ManifestWorkExecutor{}
		}), inbox.Replaced},

		{"deletion", []any{spec("a", 2)}, spec("a", 2, deleting), inbox.Deletion},
		{"deletion of a later generation", []any{spec("a", 2)}, spec("a", 3, deleting), inbox.Deletion},
		{"deletion of an earlier generation", []any{spec("a", 2)}, spec("a", 1, deleting), inbox.Deletion},
		{"bare deletion", []any{spec("a", 2)}, spec("a", 2, bare, deleting), inbox.Disowned},
		{"bare deletion, unasked", []any{spec("a", 2)}, spec("a", 2, bare, deleting, unasked), inbox.Deletion},
		{"bare deletion, unasked, of a source with an identity", []any{spec("a", 2, of("one"))}, spec("a", 2, bare, deleting, unasked, of("one")), inbox.Disowned},
		{"bare deletion, unasked, of another identity", []any{spec("a", 2, of("one"))}, spec("a", 2, bare, deleting, unasked, of("two")), inbox.Held},
		{"bare deletion, unasked, no identity any more", []any{spec("a", 2, of("one"))}, spec("a", 2, bare, deleting, unasked), inbox.Disowned},
		{"bare deletion, unasked, an identity at last", []any{spec("a", 2)}, spec("a", 2, bare, deleting, unasked, of("two")), inbox.Disowned},
		{"bare deletion, same identity", []any{spec("a", 2, of("one"))}, spec("a", 2, bare, deleting, of("one")), inbox.Disowned},
		{"bare deletion, another identity", []any{spec("a", 2, of("one"))}, spec("a", 2, bare, deleting, of("two")), inbox.Held},
		{"bare deletion, an identity at last", []any{spec("a", 2)}, spec("a", 2, bare, deleting, of("two")), inbox.Disowned},
		{"bare deletion, no identity any more", []any{spec("a", 2, of("one"))}, spec("a", 2, bare, deleting), inbox.Disowned},
		{"bare deletion, identity learnt", []any{spec("a", 2), spec("a", 2, of("one"))}, spec("a", 2, bare, deleting, of("two")), inbox.Held},
		{"bare deletion while being deleted", []any{spec("a", 2), spec("a", 2, deleting)}, spec("a", 3, bare, deleting, of("two")), inbox.Deletion},
		{"recorded deletion, another identity", []any{spec("a", 2, of("one"))}, spec("a", 2, deleting, of("two")), inbox.Deletion},
		{"held, disowned again", disowned, spec("a", 2, bare, deleting, of("two")), inbox.Same},
		{"held, disowned by the first source", disowned, spec("a", 2, bare, deleting, of("one")), inbox.Same},
		{"held, recorded deletion", disowned, spec("a", 2, deleting, of("two")), inbox.Deletion},
		{"held, the spec in force", disowned, spec("a", 2, of("two")), inbox.Replaced},
		{"held, a later spec", disowned, spec("a", 3, of("two")), inbox.Replaced},
		{"held, an earlier spec", disowned, spec("a", 1, of("two")), inbox.Kept},
		{"held, an earlier spec that counts", disowned, spec("a", 1, authoritative), inbox.Replaced},
		{"deletion twice", []any{spec("a", 2), spec("a", 2, deleting)}, spec("a", 2, deleting), inbox.Same},
		{"deletion again, of another generation", []any{spec("a", 2), spec("a", 2, deleting)}, spec("a", 3, deleting), inbox.Deletion},
		{"spec after the deletion", []any{spec("a", 2), spec("a", 2, deleting)}, spec("a", 2), inbox.Late},
		{"later spec after the deletion", []any{spec("a", 2), spec("a", 2, deleting)}, spec("a", 9), inbox.Late},
		{"spec without version after the deletion", []any{spec("a", 2), spec("a", 2, deleting)}, spec("a", 0), inbox.Late},

		{"good spec of a refused generation", []any{spec("a", 1), undecodable("a", 2, "x")}, spec("a", 2), inbox.Replaced},
		{"good spec after a refused one", []any{spec("a", 1), undecodable("a", 2, "x")}, spec("a", 3), inbox.Replaced},
		{"the spec in force again", []any{spec("a", 1), undecodable("a", 2, "x")}, spec("a", 1), inbox.Older},
		{"the spec in force again, of the same generation", []any{spec("a", 2), undecodable("a", 2, "x")}, spec("a", 2), inbox.Replaced},
		{"good spec where none was", []any{undecodable("a", 2, "x")}, spec("a", 2), inbox.Replaced},
		{"deletion of a refused work", []any{undecodable("a", 2, "x")}, spec("a", 0, deleting), inbox.Deletion},
		{"authoritative, earlier generation", []any{spec("a", 2)}, spec("a", 1, authoritative), inbox.Replaced},
		{"authoritative, same generation, another manifest", []any{spec("a", 2)}, spec("a", 2, authoritative, holding("other")), inbox.Replaced},
		{"authoritative, twice", []any{spec("a", 2), spec("a", 1, authoritative)}, spec("a", 1, authoritative), inbox.Same},
		{"authoritative, earlier than refused", []any{spec("a", 1), undecodable("a", 3, "x")}, spec("a", 2, authoritative), inbox.Replaced},
		{"authoritative, while being deleted", []any{spec("a", 2), spec("a", 2, deleting)}, spec("a", 1, authoritative), inbox.Late},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := inbox.Decide(held(t, tc.held...), tc.in); got != tc.want {
				t.Errorf("Decide = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestDecideRefusal(t *testing.T) {
	refusal := func(generation wire.Generation, why string) inbox.Refusal {
		return inbox.Refusal{Generation: generation, Message: why}
	}
	for _, tc := range []struct {
		name string
		held []any
		in   inbox.Refusal
		want inbox.Verdict

		authoritative bool
	}{
		{"unknown work", nil, refusal(1, "x"), inbox.Refused, false},
		{"later generation", []any{spec("a", 1)}, refusal(2, "x"), inbox.Refused, false},
		{"same generation", []any{spec("a", 1)}, refusal(1, "x"), inbox.Refused, false},
		{"earlier generation", []any{spec("a", 2)}, refusal(1, "x"), inbox.Older, false},
		{"unreadable generation", []any{spec("a", 2)}, refusal(0, "x"), inbox.Refused, false},
		{"twice", []any{spec("a", 1), undecodable("a", 2, "x")}, refusal(2, "x"), inbox.Same, false},
		{"again, for another reason", []any{spec("a", 1), undecodable("a", 2, "x")}, refusal(2, "y"), inbox.Refused, false},
		{"earlier than refused", []any{spec("a", 1), undecodable("a", 3, "x")}, refusal(2, "y"), inbox.Older, false},
		{"authoritative, earlier generation", []any{spec("a", 2)}, refusal(1, "x"), inbox.Refused, true},
		{"held", []any{spec("a", 2, of("one")), spec("a", 2, bare, deleting, of("two"))}, refusal(2, "x"), inbox.Refused, false},
		{"work being deleted", []any{spec("a", 1), spec("a", 1, deleting)}, refusal(2, "x"), inbox.Late, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := inbox.DecideRefusal(held(t, tc.held...), tc.in, tc.authoritative); got != tc.want {
				t.Errorf("DecideRefusal = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestVerdictNames(t *testing.T) {
	seen := map[string]bool{}
	for v := inbox.Added; v <= inbox.Nameless; v++ {
		name := v.String()
		if name == "" || name == "invalid" || seen[name] {
			t.Errorf("verdict %d is called %q", v, name)
		}
		seen[name] = true
		if want := v <= inbox.Kept; v.Changes() != want {
			t.Errorf("%v.Changes() = %v", v, !want)
		}
	}
	if inbox.Verdict(0).String() != "invalid" || (inbox.Nameless+1).String() != "invalid" {
		t.Error("what is no verdict has a name")
	}
}
