package agent_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// held makes a ConfigMap's deletion wait for a finalizer.
func held(manifest string) string {
	return strings.Replace(manifest, "metadata: {", `metadata: {finalizers: ["test.workwire.dev/hold"], `, 1)
}

// A spec that arrives while a work is being deleted has no effect.
func TestSpecDoesNotReviveADeletedWork(t *testing.T) {
	raw := newWorld(t).rawSource("hub1")
	raw.send(raw.spec("web", "uid-1", 1, held(configMap("a", "1"))), nil)
	raw.reported("uid-1", 1, workv1.WorkApplied)
	raw.delete("uid-1", 2)
	raw.reported("uid-1", 2, workv1.WorkDeleting)

	raw.send(raw.spec("web", "uid-1", 3, configMap("a", "3"), configMap("b", "3")), nil)
	// Another work's status comes when the spec has been dealt with.
	raw.send(raw.spec("other", "uid-2", 1, configMap("other", "1")), nil)
	raw.answered("the other work", func(s *wire.Status) bool {
		if s.UID == "uid-1" && !meta.IsStatusConditionTrue(s.Status.Conditions, workv1.WorkDeleting) {
			t.Errorf("the work is back: %+v", s.Status.Conditions)
		}
		return s.UID == "uid-2"
	})
	raw.data("b", "")
	raw.data("a", "1")
	raw.patch("a", `{"metadata":{"finalizers":null}}`)
	raw.reported("uid-1", 2, workv1.WorkDeleted)
	raw.data("a", "")
}

// deleting waits until condition Deleting of a work says what the deletion waits for.
func (w *fixture) deleting(works workclientv1.ManifestWorkInterface, name, waits string) *workv1.ManifestWork {
	w.Helper()
	return kit.Await(w, works, name, "is being deleted, and says: "+waits, func(work *workv1.ManifestWork) bool {
		c := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkDeleting)
		return c != nil && c.Message == "ManifestWork is being deleted; "+waits
	})
}

// An object that the agent is not permitted to delete stays in the AppliedManifestWork, with those of lower waves, and Deleted
// is reported once it is gone. The work says so.
func TestObjectThatCanNotBeDeletedStaysRecorded(t *testing.T) {
	w := newWorld(t)
	works := w.source("hub1")
	user := w.restrictedAgent("get", "list", "watch", "create", "update")
	w.deploy(works, "web", inWave(1, configMap("a", "1")), configMap("b", "1"))
	w.names("web", "a", "b")
	w.Delete(works, "web")
	w.deleting(works, "web", "ConfigMap "+w.namespace+"/a cannot be deleted (Forbidden): the log of the agent says why; 1 object of lower waves waits")
	kit.True(t, "the AppliedManifestWork is being deleted", func() bool { return w.names("web", "a", "b").DeletionTimestamp != nil })
	if tried := w.requests.All(kit.Named("b"), kit.Request.Writes, func(r kit.Request) bool { return r.Verb == "delete" }); len(tried) > 0 {
		t.Errorf("b was to be deleted before a: %v", tried)
	}
	w.grant(user, "delete", []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"delete"}}})
	w.Gone(works, "web")
	if _, err := w.cluster.CoreV1().ConfigMaps(w.namespace).Get(w.Context(), "a", metav1.GetOptions{}); err == nil {
		t.Error("the work is gone and the ConfigMap is not")
	}
}

// While an object of a deleted work waits for a finalizer, those that are gone are neither read nor recorded again at each change of it.
func TestGoneObjectsAreNotLookedForAgain(t *testing.T) {
	w := newWorld(t)
	works := w.source("hub1")
	log := &kit.Log{}
	w.agent(func(c *agent.Config) { c.Logger = log.Logger() })
	w.deploy(works, "web", configMap("free", "1"), held(configMap("held", "1")))
	w.requests.Take()
	w.Delete(works, "web")
	w.deleting(works, "web", "ConfigMap "+w.namespace+"/held waits for its finalizers test.workwire.dev/hold")
	w.patch("held", `{"data":{"k":"2"}}`)
	w.patch("held", `{"metadata":{"finalizers":null}}`)
	w.Gone(works, "web")
	if got := w.requests.Counts(kit.Named("free")); !maps.Equal(got, map[string]int{"delete configmaps": 1}) {
		t.Errorf("requests about the object that was gone at once: %v", got)
	}
	removed := 0
	for _, line := range log.Lines() {
		if strings.Contains(line, "removed an object") && strings.Contains(line, w.namespace+"/free") {
			removed++
		}
	}
	if removed != 1 {
		t.Errorf("it was removed %d times", removed)
	}
}

// What comes back with the reference to the AppliedManifestWork of a deleted work, such as from a backup of the cluster, is removed again.
func TestObjectOfADeletedWorkThatComesBackIsRemoved(t *testing.T) {
	w, works := start(t)
	w.deploy(works, "web", configMap("free", "1"), held(configMap("held", "1")))
	client := w.cluster.CoreV1().ConfigMaps(w.namespace)
	free, err := client.Get(w.Context(), "free", metav1.GetOptions{})
	kit.NoError(t, err)
	w.Delete(works, "web")
	w.deleting(works, "web", "ConfigMap "+w.namespace+"/held waits for its finalizers test.workwire.dev/hold")
	w.names("web", "held")
	free.ResourceVersion, free.UID = "", "" // with label and owner
	_, err = client.Create(w.Context(), free, metav1.CreateOptions{})
	kit.NoError(t, err)
	w.data("free", "")
	w.patch("held", `{"metadata":{"finalizers":null}}`)
	w.Gone(works, "web")
}

// So is what comes back of an object that the spec has dropped.
func TestDroppedObjectThatComesBackIsRemoved(t *testing.T) {
	w, works := start(t)
	w.deploy(works, "web", configMap("free", "1"), configMap("stays", "1"))
	client := w.cluster.CoreV1().ConfigMaps(w.namespace)
	free, err := client.Get(w.Context(), "free", metav1.GetOptions{})
	kit.NoError(t, err)
	w.change(works, "web", configMap("stays", "1"))
	w.data("free", "")
	w.names("web", "stays")
	free.ResourceVersion, free.UID = "", "" // with label and owner
	_, err = client.Create(w.Context(), free, metav1.CreateOptions{})
	kit.NoError(t, err)
	w.patch("stays", `{"data":{"k":"2"}}`) // has the work reconciled
	w.data("free", "")
}

// The end of an object that has lost the agent's label, and so is not watched, is noticed all the same.
func TestEndOfAnObjectWithoutLabelIsNoticed(t *testing.T) {
	w, works := start(t)
	w.deploy(works, "web", configMap("low", "1"), inWave(1, held(configMap("held", "1"))))
	w.names("web", "held", "low")
	w.stop()
	w.agent() // which watches the type from the start
	w.Delete(works, "web")
	w.deleting(works, "web", "ConfigMap "+w.namespace+"/held waits for its finalizers test.workwire.dev/hold; 1 object of lower waves waits")
	w.names("web", "held", "low")
	w.requests.Take()
	w.patch("held", `{"metadata":{"labels":null}}`)
	kit.True(t, "the agent has read it", func() bool {
		return len(w.requests.All(kit.Named("held"), func(r kit.Request) bool { return r.Verb == "get" })) > 0
	})
	w.patch("held", `{"metadata":{"finalizers":null}}`)
	w.Gone(works, "web")
	w.data("low", "")
}

// So is that of an object that the spec has dropped: what is to be removed after it does not wait for ever.
func TestEndOfADroppedObjectWithoutLabelIsNoticed(t *testing.T) {
	w, works := start(t)
	w.deploy(works, "web", configMap("low", "1"), inWave(1, held(configMap("held", "1"))), configMap("stays", "1"))
	w.change(works, "web", configMap("stays", "2"))
	kit.True(t, "it is being deleted", func() bool {
		object, err := w.cluster.CoreV1().ConfigMaps(w.namespace).Get(w.Context(), "held", metav1.GetOptions{})
		return err == nil && object.DeletionTimestamp != nil
	})
	w.names("web", "held", "low", "stays")
	w.requests.Take()
	w.patch("held", `{"metadata":{"labels":null}}`)
	kit.True(t, "the agent reads it again and again", func() bool {
		return len(w.requests.All(kit.Named("held"), func(r kit.Request) bool { return r.Verb == "get" })) > 1
	})
	w.patch("held", `{"metadata":{"finalizers":null}}`)
	w.names("web", "stays")
	w.data("low", "")
}

// While an object that was dropped from the spec waits for a finalizer, the others are not applied
// again.
func TestWaitingForARemovedObjectWritesNothing(t *testing.T) {
	w, works := start(t)
	w.deploy(works, "web", held(configMap("a", "1")), configMap("b", "1"))
	w.change(works, "web", configMap("b", "1"))
	work := w.Is(works, "web", "Applied=True", "Available=True")
	if n := len(work.Status.ResourceStatus.Manifests); n != 1 {
		t.Errorf("the status has %d manifests", n)
	}
	kit.Eventually(w, "a is being deleted", func() error {
		a, err := w.cluster.CoreV1().ConfigMaps(w.namespace).Get(w.Context(), "a", metav1.GetOptions{})
		if err == nil && a.DeletionTimestamp == nil {
			err = errors.New("it is not")
		}
		return err
	})
	w.names("web", "a", "b")
	w.requests.Take(kit.NotWatch)
	w.patch("a", `{"data":{"k":"still here"}}`) // makes the agent look
	w.patch("b", `{"data":{"k":"2"}}`)
	w.data("b", "1")
	for _, request := range w.requests.Take(kit.NotWatch, notEvent) {
		if request.Verb != "update" || request.Name != "b" {
			t.Errorf("a request that is not the repair of b: %s %s", request, request.Name)
		}
	}
	w.patch("a", `{"metadata":{"finalizers":null}}`)
	w.names("web", "b")
	w.data("a", "")
}

// TestDuplicateManifests: two manifests for one object do not undo each other forever.
func TestDuplicateManifests(t *testing.T) {
	w, works := start(t)
	w.Create(works, w.work("web", configMap("a", "1"), configMap("a", "2")))
	w.manifestSays(works, "web", 0, fmt.Sprintf("duplicate manifest for resource %s/a with resource type v1.ConfigMap", w.namespace))
	w.data("a", "2")
	w.names("web", "a")
	w.requests.Take(kit.NotWatch)
	w.patch("a", `{"data":{"k":"theirs"}}`)
	w.data("a", "2")
	if got := w.requests.Take(kit.NotWatch, notEvent); len(got) != 1 {
		t.Errorf("a repair took %d requests: %v", len(got), got)
	}
}
