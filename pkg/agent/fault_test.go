package agent_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// manifestSays waits until the Applied condition of a manifest is False with a message that
// contains want.
func (w *fixture) manifestSays(works workclientv1.ManifestWorkInterface, name string, manifest int, want string) {
	w.Helper()
	kit.Await(w, works, name, fmt.Sprintf("says %q of manifest %d", want, manifest), func(work *workv1.ManifestWork) bool {
		if work == nil || len(work.Status.ResourceStatus.Manifests) <= manifest {
			return false
		}
		c := meta.FindStatusCondition(work.Status.ResourceStatus.Manifests[manifest].Conditions, workv1.ManifestApplied)
		return c != nil && c.Status == metav1.ConditionFalse && strings.Contains(c.Message, want)
	})
}

func TestBadManifestsStopNoOthers(t *testing.T) {
	w, works := start(t)
	w.Create(works, w.work("web",
		configMap("fine", "1"),
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: nowhere, namespace: no-such-namespace}}",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NAMESPACE}, data: [1]}",
		"{apiVersion: test.workwire.dev/v1, kind: Gadget, metadata: {name: a}}",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: none}}",
	))
	w.Is(works, "web", "Applied=False", "Available=False")
	w.data("fine", "1")
	w.manifestSays(works, "web", 1, `Failed to apply manifest: namespaces "no-such-namespace" not found`)
	w.manifestSays(works, "web", 2, "Failed to apply manifest: ")
	w.manifestSays(works, "web", 3, `Failed to apply manifest: the server doesn't have a resource type "Gadget"`)
	w.manifestSays(works, "web", 4, "Failed to apply manifest: the server does not allow this method on the requested resource")

	w.deploy(works, "other", configMap("other", "1"))

	w.change(works, "web", configMap("fine", "2"))
	w.Is(works, "web", "Applied=True", "Available=True")
	w.data("fine", "2")
}

func TestUnknownKindIsAppliedWhenItsDefinitionComes(t *testing.T) {
	w, works := start(t)
	w.Create(works, w.work("web", configMap("a", "1"), "{apiVersion: late.workwire.dev/v1, kind: Widget, metadata: {name: w, namespace: NAMESPACE}}"))
	w.manifestSays(works, "web", 1, `the server doesn't have a resource type "Widget"`)
	// The AppliedManifestWork names the others.
	w.names("web")

	definitions := apiextensions.NewForConfigOrDie(plane.REST()).ApiextensionsV1().CustomResourceDefinitions()
	_, err := definitions.Create(w.Context(), &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.late.workwire.dev"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "late.workwire.dev", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}}},
		},
	}, metav1.CreateOptions{})
	kit.NoError(t, err)
	defer func() {
		if err := definitions.Delete(context.Background(), "widgets.late.workwire.dev", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}()
	w.Is(works, "web", "Applied=True", "Available=True")
	w.remove(works, "web")
}

func TestSpecThatCanNotBeDecodedIsAnswered(t *testing.T) {
	raw := newWorld(t).rawSource("hub1")

	spec := raw.spec("web", "uid-1", 1, configMap("a", "1"))
	spec.Action = wire.Create
	raw.send(spec, nil)
	raw.reported("uid-1", 1, workv1.WorkApplied)
	spec.Generation, spec.Action = 2, wire.Update
	for name, data := range map[string]string{
		"data is no ManifestBundle":     `{"manifests":`,
		"manifests should not be empty": `{"manifests":[]}`,
		"want a Kubernetes object":      `{"manifests":["text"]}`,
		"name must be set in manifest":  `{"manifests":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}]}`,
	} {
		raw.send(spec, []byte(data))
		raw.answered(name, func(s *wire.Status) bool {
			c := meta.FindStatusCondition(s.Status.Conditions, workv1.WorkApplied)
			return s.Generation == spec.Generation && c != nil && c.Status == metav1.ConditionFalse &&
				c.Reason == "InvalidManifestWork" && strings.Contains(c.Message, name) &&
				meta.IsStatusConditionTrue(s.Status.Conditions, workv1.WorkAvailable)
		})
		spec.Generation++
	}
	raw.data("a", "1")
	spec.Bundle = wire.NewBundle(&raw.work("web", configMap("a", "9")).Spec)
	raw.send(spec, nil)
	raw.reported("uid-1", spec.Generation, workv1.WorkApplied)
	raw.data("a", "9")
}

func TestDuplicatesAndReorderedEvents(t *testing.T) {
	w := newWorld(t)
	w.Memory.Duplicate(2)
	raw := w.rawSource("hub1")
	spec := func(generation wire.Generation, value string) *wire.Spec {
		return raw.spec("web", "uid-1", generation, configMap("a", value))
	}
	raw.send(spec(3, "3"), nil)
	raw.send(spec(1, "1"), nil)
	raw.send(spec(2, "2"), nil)
	raw.reported("uid-1", 3, workv1.WorkApplied)
	w.data("a", "3")
	// A deletion that names nothing but the UID finds its work.
	raw.delete("uid-1", 3)
	raw.reported("uid-1", 3, workv1.WorkDeleted)
	w.data("a", "")
	w.noneApplied()
	raw.delete("never-heard-of", 1)
	raw.reported("never-heard-of", 1, workv1.WorkDeleted)
}

// TestRestoredSource: a source that was restored from a backup has lower generations, and other
// content of the same generation. It learns what the agent holds, and its authoritative specs win.
func TestRestoredSource(t *testing.T) {
	raw := newWorld(t).rawSource("hub1")
	send := func(generation wire.Generation, value string, authoritative bool) (hash string) {
		spec := raw.spec("web", "uid-1", generation, configMap("a", value))
		hash, err := wire.ContentHash(spec.Bundle)
		kit.NoError(t, err)
		spec.ContentHash, spec.Authoritative = hash, authoritative
		raw.send(spec, nil)
		return hash
	}
	wants := func(generation wire.Generation, hash, value string) {
		t.Helper()
		raw.data("a", value)
		raw.Memory.Cut(cluster + "-agent")
		raw.Memory.Restore(cluster + "-agent")
		wirekit.Next(raw, raw.peer, "the agent lists what it holds", func(r *wire.SpecResync) bool {
			return slices.Contains(r.Versions, wire.SpecVersion{UID: "uid-1", Generation: generation, ContentHash: hash})
		})
	}
	hash := send(5, "five", false)
	raw.reported("uid-1", 5, workv1.WorkApplied)
	wants(5, hash, "five")
	send(2, "two", false)
	hash = send(2, "restored", true)
	raw.reported("uid-1", 2, workv1.WorkApplied)
	wants(2, hash, "restored")
	wants(2, send(2, "edited", true), "edited")
	hash = send(3, "three", false)
	raw.reported("uid-1", 3, workv1.WorkApplied)
	wants(3, hash, "three")
}

func TestAgentRestart(t *testing.T) {
	for name, state := range map[string]bool{"without state": false, "with state": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			works := w.source("hub1")
			dir := ""
			if state {
				dir = t.TempDir()
			}
			restart := func() { w.agent(func(c *agent.Config) { c.StateDir = dir }) }
			restart()
			for _, work := range []string{"kept", "changed", "deleted"} {
				w.deploy(works, work, configMap(work, "1"), configMap(work+"-more", "1"))
				w.names(work)
			}
			w.stop()

			w.change(works, "changed", configMap("changed", "2"))
			w.Delete(works, "deleted")
			w.Create(works, w.work("created", configMap("created", "1")))
			w.requests.Take(kit.NotWatch)
			restart()

			w.Gone(works, "deleted")
			w.Is(works, "changed", "Applied=True", "Available=True")
			w.Is(works, "created", "Applied=True", "Available=True")
			w.Is(works, "kept", "Applied=True", "Available=True")
			w.data("changed", "2")
			w.data("changed-more", "")
			w.data("deleted", "")
			w.data("created", "1")
			for _, request := range w.requests.Take(kit.NotWatch) {
				if !request.Writes() || !strings.Contains(request.Path, "kept") {
					continue
				}
				t.Errorf("a work that has not changed was written again: %s %s", request, request.Path)
			}
		})
	}
}

func TestBrokerAway(t *testing.T) {
	w, works := start(t)
	w.deploy(works, "web", configMap("a", "1"))
	for name, forget := range map[string]bool{"the session is kept": false, "the session is lost": true} {
		w.Memory.Cut(cluster + "-agent")
		if forget {
			w.Memory.Forget(cluster + "-agent")
		}
		w.change(works, "web", configMap("a", name))
		w.Create(works, w.work("new"+fmt.Sprint(forget), configMap("new", name)))
		w.Memory.Restore(cluster + "-agent")
		w.Is(works, "web", "Applied=True", "Available=True")
		w.data("a", name)
		w.Is(works, "new"+fmt.Sprint(forget), "Applied=True")
	}
}

func TestTwoSourcesWithWorksOfOneName(t *testing.T) {
	w := newWorld(t)
	w.Topics = wire.Topics{
		SourceEvents: "sources/+/clusters/+/sourceevents", AgentEvents: "sources/+/clusters/+/agentevents",
		SourceBroadcast: "sources/+/sourcebroadcast", AgentBroadcast: "clusters/+/agentbroadcast",
	}
	one, two := w.source("one"), w.source("two")
	w.agent()
	w.Create(one, w.work("web", configMap("a", "one")))
	w.Create(two, w.work("web", configMap("b", "two")))
	w.Is(one, "web", "Applied=True", "Available=True")
	w.Is(two, "web", "Applied=True", "Available=True")
	w.data("a", "one")
	w.data("b", "two")

	// After a restart neither source takes the other's work for gone.
	w.stop()
	w.Memory.Forget(cluster + "-agent")
	w.agent()
	w.change(two, "web", configMap("b", "three"))
	w.Is(two, "web", "Applied=True", "Available=True")
	w.data("b", "three")

	w.remove(one, "web")
	w.data("a", "")
	w.data("b", "three")
	w.Is(two, "web", "Applied=True", "Available=True")
}

func TestNameThatComesBackWithAnotherUID(t *testing.T) {
	raw := newWorld(t).rawSource("hub1")
	spec := func(uid types.UID, manifests ...string) *wire.Spec {
		return raw.spec("web", uid, 1, manifests...)
	}
	raw.send(spec("first", configMap("a", "1"), configMap("b", "1")), nil)
	raw.reported("first", 1, workv1.WorkApplied)
	raw.send(spec("second", configMap("b", "2"), configMap("c", "2")), nil)
	raw.reported("second", 1, workv1.WorkApplied)
	raw.data("a", "")
	raw.data("b", "2")
	raw.data("c", "2")
	raw.delete("first", 1)
	raw.reported("first", 1, workv1.WorkDeleted)
	raw.data("b", "2")
}

// rawSource is a source whose messages the test writes.
type rawSource struct {
	*fixture
	peer  *wirekit.Peer
	topic string
}

// rawSource connects a source and starts an agent, which has subscribed and asked for specs when it
// returns. Nobody answers such requests.
func (w *fixture) rawSource(id wire.SourceID, configure ...func(*agent.Config)) *rawSource {
	w.Helper()
	raw := &rawSource{
		fixture: w, topic: fmt.Sprintf("sources/%s/clusters/%s/sourceevents", id, cluster),
		peer: wirekit.Connect(w, w.Memory.Client(string(id)), fmt.Sprintf("sources/%s/clusters/+/agentevents", id)),
	}
	w.agent(configure...)
	wirekit.Next(w, raw.peer, "the agent asks for specs", func(*wire.SpecResync) bool { return true })
	return raw
}

// listed returns the works that the agent named in its last request.
func (r *rawSource) listed() (versions []wire.SpecVersion) {
	for _, message := range r.peer.Received() {
		if request, ok := message.(*wire.SpecResync); ok {
			versions = request.Versions
		}
	}
	return versions
}

// spec makes a spec of manifests in YAML.
func (r *rawSource) spec(name string, uid types.UID, generation wire.Generation, manifests ...string) *wire.Spec {
	return &wire.Spec{UID: uid, Source: "hub1", Cluster: cluster, Generation: generation, Action: wire.Update,
		Meta: metav1.ObjectMeta{Name: name, Namespace: cluster, UID: uid}, Bundle: wire.NewBundle(&r.work(name, manifests...).Spec)}
}

// send publishes spec, with other data if data is not nil.
func (r *rawSource) send(spec *wire.Spec, data []byte) {
	r.Helper()
	r.peer.Publish(r, r.topic, spec, func(event *cloudevents.Event) {
		if data != nil {
			event.DataEncoded = data
		}
	})
}

// delete publishes a deletion that has no metadata.
func (r *rawSource) delete(uid types.UID, generation wire.Generation) {
	r.Helper()
	now := metav1.Now()
	r.send(&wire.Spec{UID: uid, Source: "hub1", Cluster: cluster, Generation: generation, Action: wire.Delete, NoMetadata: true, DeletionTimestamp: &now}, nil)
}

// reported waits for a status of the work at generation, any if it is 0, that has the condition.
func (r *rawSource) reported(uid types.UID, generation wire.Generation, condition string) {
	r.Helper()
	r.answered(fmt.Sprintf("%s is %s", uid, condition), func(s *wire.Status) bool {
		return s.UID == uid && (generation == 0 || s.Generation == generation) && meta.IsStatusConditionTrue(s.Status.Conditions, condition)
	})
}

// answered waits for a status for which check returns true.
func (r *rawSource) answered(what string, check func(*wire.Status) bool) {
	r.Helper()
	wirekit.Next(r, r.peer, what, check)
}
