package reconcile

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/internal/applied"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// Whether an object was dropped from the spec is decided for those that the status names and for
// those that only the intent names, which an agent leaves that ends while it applies.
func TestDroppedResources(t *testing.T) {
	ref := func(resource, name string) object.Ref {
		return object.Ref{GroupVersionResource: schema.GroupVersionResource{Group: "shop.dev", Version: "v1", Resource: resource}, Namespace: "a", Name: name}
	}
	unresolved := func(group, name string) strategy.Manifest {
		return strategy.Manifest{Meta: workv1.ManifestResourceMeta{Group: group, Version: "v1", Kind: "Pump", Namespace: "a", Name: name}}
	}
	resolved := func(r object.Ref) strategy.Manifest {
		return strategy.Manifest{Ref: r, Meta: workv1.ManifestResourceMeta{Group: r.Group, Version: r.Version, Resource: r.Resource, Namespace: r.Namespace, Name: r.Name}}
	}
	pump := ref("pumps", "one")
	for name, c := range map[string]struct {
		manifests          []strategy.Manifest
		gone               bool
		dropped, undecided []object.Ref
		undecidedIfStored  []object.Ref
		droppedIfStored    []object.Ref
	}{
		"in the spec":                       {manifests: []strategy.Manifest{resolved(pump)}},
		"not in the spec":                   {dropped: []object.Ref{pump}, droppedIfStored: []object.Ref{pump}},
		"not in the spec and gone":          {gone: true, droppedIfStored: []object.Ref{pump}},
		"its kind is not known now":         {manifests: []strategy.Manifest{unresolved("shop.dev", "one")}, undecided: []object.Ref{pump}, undecidedIfStored: []object.Ref{pump}},
		"another object of an unknown kind": {manifests: []strategy.Manifest{unresolved("shop.dev", "two")}, dropped: []object.Ref{pump}, droppedIfStored: []object.Ref{pump}},
		"a kind of another group":           {manifests: []strategy.Manifest{unresolved("other.dev", "one")}, dropped: []object.Ref{pump}, droppedIfStored: []object.Ref{pump}},
	} {
		t.Run(name, func(t *testing.T) {
			for stored, want := range map[bool][2][]object.Ref{
				false: {c.dropped, c.undecided}, true: {c.droppedIfStored, c.undecidedIfStored},
			} {
				amw := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "hub-web"}}
				if stored {
					amw.Status.AppliedResources = []workv1.AppliedManifestResourceMeta{{
						ResourceIdentifier: workv1.ResourceIdentifier{Group: pump.Group, Resource: pump.Resource, Namespace: pump.Namespace, Name: pump.Name},
						Version:            pump.Version, UID: "1",
					}}
				} else {
					intent, err := json.Marshal(map[string]map[string][]string{"shop.dev/v1/pumps": {"a": {"one"}}})
					if err != nil {
						t.Fatal(err)
					}
					amw.Annotations = map[string]string{applied.IntentAnnotation: string(intent)}
				}
				e := &entry{}
				if c.gone {
					e.history.noteRemoval(pump, apply.RemovalOutcome{Gone: true}, time.Now())
				}
				rec := &reconciliation{subject: subject{logger: slog.New(slog.DiscardHandler), entry: e}, known: amw, manifests: c.manifests, tracked: manifestRefs(c.manifests)}
				dropped, undecided := rec.droppedResources()
				if diff := cmp.Diff(want, [2][]object.Ref{refsOf(dropped), undecided}, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("dropped and undecided, with a UID in the status %v: %s", stored, diff)
				}
			}
		})
	}
}
