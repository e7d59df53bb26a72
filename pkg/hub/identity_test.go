package hub_test

import (
	"maps"
	"testing"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// startHubHere runs a hub that has its identity in the world's namespace.
func (w *hubWorld) startHubHere() *replica {
	w.Helper()
	return w.startHub(func(c *hub.Config) { c.Election.Namespace = w.namespace })
}

// identityMap returns the ConfigMap of identities with this content.
func identityMap(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: hub.IdentityConfigMap}, Data: data}
}

// TestIdentity: the identity of an API is made once and is on every spec event; an API without it
// gets another one, so that agents can tell "unknown" from "deleted".
func TestIdentity(t *testing.T) {
	w := newWorld(t)
	core, err := corev1client.NewForConfig(plane.REST())
	kit.NoError(t, err)
	identityMaps := core.ConfigMaps(w.namespace)
	stored := func() string {
		t.Helper()
		m, err := identityMaps.Get(t.Context(), hub.IdentityConfigMap, metav1.GetOptions{})
		kit.NoError(t, err)
		if err := uuid.Validate(m.Data["hub1"]); err != nil || m.Data["another"] != "" && m.Data["another"] != "kept" {
			t.Fatalf("the ConfigMap has %v: %v", m.Data, err)
		}
		return m.Data["hub1"]
	}
	requests := func(r *replica, want map[string]int) {
		t.Helper()
		if got := r.requests.Counts(kit.On("configmaps"), kit.InNamespace(w.namespace)); !maps.Equal(got, want) {
			t.Errorf("requests %v, want %v", got, want)
		}
	}
	r := w.startHubHere()
	a := w.startAgent(nil)
	work := w.create("w")
	w.Applied(w.works, "w")
	first := stored()
	if got := a.Await(t, "spec", generation(work.UID, 1)); got.SourceIdentity != first || got.ContentHash == "" || got.Authoritative {
		t.Errorf("the spec has identity %q, content hash %q, authoritative %v; want identity %q",
			got.SourceIdentity, got.ContentHash, got.Authoritative, first)
	}
	requests(r, map[string]int{"get configmaps": 1, "create configmaps": 1})
	r.Stop()

	r = w.startHubHere()
	w.settle(a)
	if second := stored(); second != first {
		t.Errorf("after a restart the identity is %q, was %q", second, first)
	}
	requests(r, map[string]int{"get configmaps": 1})
	r.Stop()

	// Another API under the same source id: it has the ConfigMap of another source at most.
	kit.NoError(t, identityMaps.Delete(t.Context(), hub.IdentityConfigMap, metav1.DeleteOptions{}))
	another, err := identityMaps.Create(t.Context(), identityMap(map[string]string{"another": "kept"}), metav1.CreateOptions{})
	if err != nil || another.Data["another"] != "kept" {
		t.Fatal(err)
	}
	a.Stop()
	const unknown = types.UID("1f0e5e3c-0000-4000-8000-000000000001")
	holds := a.Holds()
	holds[unknown] = &wire.Spec{UID: unknown, Generation: 1}
	r = w.startHubHere()
	back := w.startAgent(holds)
	answer := back.Await(t, "answer about an unknown work", deletion(unknown))
	if third := stored(); third == first || answer.SourceIdentity != third || !answer.NoMetadata {
		t.Errorf("the answer has identity %q, metadata %v; the API has %q, before it was %q", answer.SourceIdentity, !answer.NoMetadata, third, first)
	}
	requests(r, map[string]int{"get configmaps": 1, "update configmaps": 1})
	w.Delete(w.works, "w")
	if recorded := back.Await(t, "deletion", deletion(work.UID)); recorded.NoMetadata {
		t.Error("a recorded deletion has no metadata")
	}
	w.Gone(w.works, "w")
}

// TestIdentityIsRetried: a ConfigMap that cannot be used is named in the log, and nothing is
// published until it can.
func TestIdentityIsRetried(t *testing.T) {
	w := newWorld(t)
	core, err := corev1client.NewForConfig(plane.REST())
	kit.NoError(t, err)
	if _, err := core.ConfigMaps(w.namespace).Create(t.Context(), identityMap(map[string]string{"hub1": "No UUID"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r := w.startHubHere()
	r.Log.Await(t, `reading the source identity failed, retrying.*key hub1 is not a UUID`)
	if w.Memory.Connected("hub1-hub") {
		t.Error("the hub is connected without an identity")
	}
	kit.NoError(t, core.ConfigMaps(w.namespace).Delete(t.Context(), hub.IdentityConfigMap, metav1.DeleteOptions{}))
	r.AwaitConnected()
}

// TestRestoredAPI: after the API was restored from a backup, agents hold higher generations, or
// other content of an equal one. The API's content wins, at no more requests than any work costs,
// and the status is about it.
func TestRestoredAPI(t *testing.T) {
	w := newWorld(t)
	r := w.startHubHere()
	r.AwaitConnected()
	holds := make(map[types.UID]*wire.Spec)
	for name, generation := range map[string]wire.Generation{"lower": 9, "other": 1} {
		work := w.create(name)
		w.await(name, "held by the hub", func(work *workv1.ManifestWork) bool { return work != nil && len(work.Finalizers) > 0 })
		holds[work.UID] = &wire.Spec{UID: work.UID, Generation: generation, Source: source, Cluster: wire.ClusterName(w.namespace),
			ContentHash: "0000", Meta: metav1.ObjectMeta{Name: name, UID: work.UID}}
	}
	kit.True(t, "both are published", func() bool { return r.Metric("workwire_source_published_total", "result=ok") == 2 })
	began := time.Now()
	a := w.startAgent(holds)
	for uid, before := range holds {
		name := before.Meta.Name
		w.Applied(w.works, name)
		spec := a.Await(t, "spec of "+name, generation(uid, 1))
		if !spec.Authoritative || spec.Action != wire.ResyncResponse {
			t.Errorf("%s: sent by a %s, authoritative %v", name, spec.Action, spec.Authoritative)
		}
		if got := r.requestCounts(w.namespace, name); !maps.Equal(got, map[string]int{"patch manifestworks": 1, "update manifestworks/status": 1}) {
			t.Errorf("%s: requests %v", name, got)
		}
	}
	t.Logf("converged after %v", time.Since(began))
	w.settle(a)
	for uid, before := range holds {
		if n := len(a.Specs(uid)); n != 1 {
			t.Errorf("%s was sent %d times", before.Meta.Name, n)
		}
	}
}
