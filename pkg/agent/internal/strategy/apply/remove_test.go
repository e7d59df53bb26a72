package apply_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/plan"
)

// removed removes an object, which has to have that outcome, such as "Delete gone", and cost.
func (s *spoke) removed(entry plan.Removal, want, requests string) {
	s.t.Helper()
	if got := s.remove(entry); got != want {
		s.t.Errorf("got %s, want %s", got, want)
	}
	s.wantRequests(requests)
}

// remove removes objects and gives what was done, such as "Delete gone".
func (s *spoke) remove(entries ...plan.Removal) string {
	s.t.Helper()
	var done []string
	for _, outcome := range s.applier.Remove(s.t.Context(), entries, true, s.owner.UID) {
		word := string(outcome.Step)
		if outcome.Gone {
			word += " gone"
		}
		if outcome.Err != nil {
			word += " " + outcome.Err.Error()
		}
		done = append(done, word)
	}
	return strings.Join(done, ", ")
}

func (s *spoke) exists(ref object.Ref) bool {
	s.t.Helper()
	_, err := s.resource(ref).Get(s.t.Context(), ref.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		s.t.Fatal(err)
	}
	return err == nil
}

func (s *spoke) configMap(rest string) (*strategy.Manifest, plan.Removal) {
	s.t.Helper()
	manifests := s.parse(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"NS","name":"c"`+rest+`}}`)
	s.applied(manifests, "1× POST 201")
	return &manifests[0], plan.Removal{Ref: manifests[0].Ref}
}

// share makes a second work own an object too, and gives its reference.
func (s *spoke) share(ref object.Ref) metav1.OwnerReference {
	s.t.Helper()
	second := s.newOwner("second")
	s.patch(ref, "other", `{"metadata":{"ownerReferences":[`+asJSON(s.t, s.owner)+`,`+asJSON(s.t, second)+`]}}`)
	return second
}

func TestRemove(t *testing.T) {
	s := newSpoke(t)
	_, entry := s.configMap("")
	s.removed(entry, "Delete gone", "1× DELETE 200")
	if s.exists(entry.Ref) {
		t.Error("it exists")
	}
	// It was learnt that it is gone, but somebody may have made another without our label.
	s.removed(entry, "Forget gone", "1× GET 404")
}

func TestRemoveHeldByFinalizer(t *testing.T) {
	s := newSpoke(t)
	_, entry := s.configMap(`,"finalizers":["example.com/hold"]`)
	s.removed(entry, "Delete", "1× DELETE 200")
	s.removed(entry, "Await", "")
	if s.get(entry.Ref).GetDeletionTimestamp() == nil {
		t.Error("it is not being deleted")
	}
	s.patchOnly(entry.Ref, "other", `{"metadata":{"finalizers":null}}`)
	s.cache.Learn(entry.Ref, nil)
	if got := s.remove(entry); got != "Forget gone" {
		t.Errorf("got %s", got)
	}
}

// What the API server answers to a deletion differs by kind.
func TestRemoveEveryKind(t *testing.T) {
	s := newSpoke(t)
	manifests := s.parse(nil, everyKind...)
	var entries []plan.Removal
	applied := s.applied(manifests, "27× POST 201")
	for i := range manifests {
		entries = append(entries, plan.Removal{Ref: manifests[i].Ref})
	}
	for i, outcome := range s.applier.Remove(t.Context(), entries, false, s.owner.UID) {
		kind := manifests[i].Meta.Kind
		if outcome.Err != nil || outcome.Step != plan.Delete && outcome.Step != plan.Await {
			t.Errorf("%s: %+v", kind, outcome)
			continue
		}
		// Pods go gracefully, the others wait for a controller; those may be quick.
		waits := kind == "Pod" || kind == "Namespace" || kind == "CustomResourceDefinition" || kind == "PersistentVolumeClaim"
		if !waits && !outcome.Gone {
			t.Errorf("%s is said to remain", kind)
		}
		// Another of that name may come: a controller writes aggregated roles.
		live, err := s.resource(entries[i].Ref).Get(t.Context(), entries[i].Ref.Name, metav1.GetOptions{})
		if err == nil && outcome.Gone && live.GetUID() == applied[i].Live.GetUID() {
			t.Errorf("%s is said to be gone, but exists: %v", kind, live.Object["metadata"])
		}
	}
}

func TestRemoveShared(t *testing.T) {
	s := newSpoke(t)
	_, entry := s.configMap("")
	second, uid := s.share(entry.Ref), s.get(entry.Ref).GetUID()
	s.removed(entry, "DropOwner gone", "1× PATCH 200")
	live := s.get(entry.Ref)
	if diff := cmp.Diff([]metav1.OwnerReference{second}, live.GetOwnerReferences()); diff != "" || live.GetUID() != uid {
		t.Errorf("owners: %s", diff)
	}
	s.removed(entry, "Forget gone", "1× GET 200")
	if !s.exists(entry.Ref) {
		t.Error("it is gone")
	}
}

// The cache does not know yet that the work owns the object: the write got no answer, and the watch is late.
func TestRemoveWhatWasWrittenWithoutAnAnswer(t *testing.T) {
	s := newSpoke(t)
	_, entry := s.configMap("")
	s.patch(entry.Ref, "other", `{"metadata":{"ownerReferences":null}}`)
	stale := s.cache.Get(entry.Ref).Object
	s.patch(entry.Ref, "other", `{"metadata":{"ownerReferences":[`+asJSON(t, s.owner)+`]}}`)
	s.cache.Learn(entry.Ref, stale)
	s.removed(entry, "Delete gone", "1× DELETE 200, 1× GET 200")
	if s.exists(entry.Ref) {
		t.Error("it exists")
	}
}

// The cache does not know yet that another work has taken a share.
func TestRemoveGuardsAgainstStaleCache(t *testing.T) {
	s := newSpoke(t)
	_, entry := s.configMap("")
	stale := s.cache.Get(entry.Ref).Object
	s.share(entry.Ref)
	s.cache.Learn(entry.Ref, stale)
	s.removed(entry, "DropOwner gone", "1× DELETE 409, 1× GET 200, 1× PATCH 200")
	if !s.exists(entry.Ref) {
		t.Error("it is gone")
	}
}

func TestRemoveKeepsWhatIsNotOurs(t *testing.T) {
	s := newSpoke(t)
	m, entry := s.configMap("")
	s.patch(entry.Ref, "other", `{"metadata":{"ownerReferences":null}}`)
	if got := s.remove(entry, plan.Removal{Ref: m.Ref}); got != "Forget gone, Forget gone" || !s.exists(entry.Ref) {
		t.Errorf("not owned: %s", got)
	}
	s.wantRequests("2× GET 200")
	evil := plan.Removal{Ref: object.Ref{GroupVersionResource: m.Ref.GroupVersionResource, Namespace: s.namespace, Name: ".."}}
	if got := s.remove(evil); !strings.Contains(got, "may not be '..'") {
		t.Errorf("a path: %s", got)
	}
}

// What is orphaned by the same spec that drops it stays, without us.
func TestRemoveOrphan(t *testing.T) {
	for name, test := range map[string]struct {
		rest     string                         // of the manifest
		change   func(s *spoke, ref object.Ref) // before the removal
		done     string                         // the removal
		requests string
		label    string // afterwards
		owners   int
	}{
		"ours alone":       {done: "DropOwner gone", requests: "1× PATCH 200"},
		"with a finalizer": {rest: `,"finalizers":["example.com/hold"]`, done: "DropOwner gone", requests: "1× PATCH 200"},
		"of another owner too": {
			change: func(s *spoke, ref object.Ref) {
				namespace := s.get(object.Ref{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Name: s.namespace})
				s.patch(ref, "other", `{"metadata":{"ownerReferences":[`+asJSON(s.t, s.owner)+`,
					{"apiVersion":"v1","kind":"Namespace","name":"`+s.namespace+`","uid":"`+string(namespace.GetUID())+`"}]}}`)
			},
			done: "DropOwner gone", requests: "1× PATCH 200", owners: 1,
		},
		"another work's too: it watches on": {
			change: func(s *spoke, ref object.Ref) { s.share(ref) },
			done:   "DropOwner gone", requests: "1× PATCH 200", label: agentHash, owners: 1,
		},
		"orphaned before": {
			change: func(s *spoke, ref object.Ref) { s.patch(ref, "other", `{"metadata":{"ownerReferences":null}}`) },
			done:   "DropOwner gone", requests: "1× PATCH 200",
		},
		"orphaned before, and another agent's": {
			change: func(s *spoke, ref object.Ref) {
				s.patch(ref, "other", `{"metadata":{"ownerReferences":null,"labels":{"workwire.dev/agent":"another"}}}`)
			},
			done: "DropOwner gone", label: "another",
		},
		"orphaned before, and without label": {
			change: func(s *spoke, ref object.Ref) {
				s.patch(ref, "other", `{"metadata":{"ownerReferences":null,"labels":null}}`)
			},
			done: "Forget gone", requests: "1× GET 200",
		},
		"not known": {
			change: func(s *spoke, ref object.Ref) { s.restart() },
			done:   "DropOwner gone", requests: "1× GET 200, 1× PATCH 200",
		},
		"changed meanwhile": {
			change: func(s *spoke, ref object.Ref) { s.patchOnly(ref, "other", `{"metadata":{"labels":{"x":"y"}}}`) },
			done:   "DropOwner gone", requests: "1× GET 200, 1× PATCH 200, 1× PATCH 409",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpoke(t)
			_, entry := s.configMap(test.rest)
			uid := s.get(entry.Ref).GetUID()
			entry.Orphan = true
			if test.change != nil {
				test.change(s, entry.Ref)
			}
			s.removed(entry, test.done, test.requests)
			live := s.get(entry.Ref)
			if live.GetUID() != uid || live.GetDeletionTimestamp() != nil {
				t.Error("it was deleted")
			}
			if live.GetLabels()[object.AgentLabel] != test.label || len(live.GetOwnerReferences()) != test.owners {
				t.Errorf("labels %v, owners %v", live.GetLabels(), live.GetOwnerReferences())
			}
		})
	}
}

// An orphan may be gone, or another object by now.
func TestRemoveOrphanThatIsGone(t *testing.T) {
	s := newSpoke(t)
	_, entry := s.configMap("")
	entry.Orphan = true
	s.delete(entry.Ref)
	s.removed(entry, "Forget gone", "1× PATCH 404")
}

// The objects of a work go by their waves, the highest first, and cost no request more, whether they are known or not.
func TestRemoveByWaves(t *testing.T) {
	s := newSpoke(t)
	var entries []plan.Removal
	add := func(name, wave, rest string) {
		manifests := s.parse(nil, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"NS","name":%q,"annotations":{"workwire.dev/wave":%q}%s}}`, name, wave, rest))
		s.applied(manifests, "1× POST 201")
		entries = append(entries, plan.Removal{Ref: manifests[0].Ref})
	}
	done := func(want, requests string) {
		t.Helper()
		if got := s.remove(entries...); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		s.wantRequests(requests)
	}
	add("lowest", "-1", "")
	add("held", "2", `,"finalizers":["example.com/hold"]`)
	add("shared", "-1", "")
	s.share(entries[2].Ref)
	add("kept", "-1", "")
	entries[3].Orphan = true
	add("highest", "3", "")
	add("beside", "2", "")
	done("Hold, Delete, Hold, DropOwner gone, Delete gone, Delete gone", "3× DELETE 200, 1× PATCH 200")
	done("Hold, Await, Hold, Forget gone, Forget gone, Forget gone", "1× GET 200, 2× GET 404")
	entries = entries[:3]
	s.restart()
	done("Hold, Await, Hold", "3× GET 200")
	entries[1].Later = true // not read, so that its wave is not known
	s.restart()
	done("Hold, LookUp, Hold", "2× GET 200")
	entries[1].Later = false
	s.patchOnly(entries[1].Ref, "other", `{"metadata":{"finalizers":null}}`)
	s.cache.Learn(entries[1].Ref, nil)
	done("Delete gone, Forget gone, DropOwner gone", "1× DELETE 200, 1× GET 404, 1× PATCH 200")
	if !s.exists(entries[2].Ref) {
		t.Error("what another work has, too, is gone")
	}
}

// An object that a watch shows as somebody else's, and that cannot be read, holds up no other.
func TestRemoveWithoutWaitingForOthers(t *testing.T) {
	s := newSpoke(t)
	manifests := s.parse(nil,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"NS","name":"ours"}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"NS","name":"theirs","annotations":{"workwire.dev/wave":"1"}}}`)
	s.applied(manifests, "2× POST 201")
	s.patch(manifests[1].Ref, "other", `{"metadata":{"ownerReferences":null}}`)
	if got := s.remove(plan.Removal{Ref: manifests[0].Ref}, plan.Removal{Ref: manifests[1].Ref, Later: true}); got != "Delete gone, LookUp" {
		t.Errorf("got %s", got)
	}
}
