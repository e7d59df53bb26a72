package reconcile

import (
	"errors"
	"testing"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
)

func TestLastAppliedFindsTheManifestLastApplied(t *testing.T) {
	first, second := &inbox.Entry{Trace: "first"}, &inbox.Entry{Trace: "second"}
	a, b, c := object.Ref{Name: "a"}, object.Ref{Name: "b"}, object.Ref{Name: "c"}
	specs := map[*inbox.Entry][]strategy.Manifest{
		first:  {{Ref: a, Hash: "a1"}, {Ref: b, Hash: "b1"}},
		second: {{Ref: a, Hash: "a2"}, {Ref: c, Hash: "c2"}, {Ref: a, Hash: "twice", Err: errors.New("duplicate")}},
	}
	for name, test := range map[string]struct {
		history history
		now     *inbox.Entry
		want    map[object.Ref]string
		parses  int
	}{
		"nothing after a start":                 {now: first, want: map[object.Ref]string{a: "", b: ""}},
		"all of the same spec, not read again":  {history: history{spec: first}, now: first, want: map[object.Ref]string{a: "a1", b: "b1", c: ""}},
		"all of an earlier spec, read once":     {history: history{spec: first}, now: second, want: map[object.Ref]string{a: "a1", b: "b1", c: ""}, parses: 1},
		"not the one that could not be applied": {history: history{spec: second}, now: second, want: map[object.Ref]string{a: "a2", c: "c2"}},
		"each of its own spec": {
			history: history{spec: second, applied: map[object.Ref]*inbox.Entry{a: first, c: second}}, now: second,
			want: map[object.Ref]string{a: "a1", b: "", c: "c2"}, parses: 1,
		},
		"none with success": {history: history{spec: first, applied: map[object.Ref]*inbox.Entry{}}, now: first, want: map[object.Ref]string{a: "", b: ""}},
	} {
		t.Run(name, func(t *testing.T) {
			parses := 0
			e := newLastApplied(&test.history, test.now, specs[test.now], func(spec *inbox.Entry) []strategy.Manifest {
				parses++
				return specs[spec]
			})
			for ref, want := range test.want {
				got := ""
				if m := e.manifest(ref); m != nil {
					got = m.Hash
				}
				if got != want {
					t.Errorf("%s was last applied as %q, want %q", ref.Name, got, want)
				}
				if known := e.spec(ref) != nil; known != (want != "") {
					t.Errorf("%s: a spec is known: %v", ref.Name, known)
				}
			}
			if parses != test.parses {
				t.Errorf("read %d specs, want %d", parses, test.parses)
			}
		})
	}
}
