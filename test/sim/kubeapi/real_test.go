package kubeapi_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/sim/kubeapi"
)

var plane *controlplane.Plane

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Planes{Hub: &plane}) }

const works = "work.open-cluster-management.io"

// kinds are those of which objects are compared: one of Kubernetes, one that the control plane serves by its Go type, and one by its definition.
var kinds = map[string]kubeapi.Kind{
	"ConfigMap":           {GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Kind: "ConfigMap"},
	"ManifestWork":        {GroupVersionResource: schema.GroupVersionResource{Group: works, Version: "v1", Resource: "manifestworks"}, Kind: "ManifestWork", Status: true},
	"AppliedManifestWork": {GroupVersionResource: schema.GroupVersionResource{Group: works, Version: "v1", Resource: "appliedmanifestworks"}, Kind: "AppliedManifestWork", Status: true, Cluster: true},
}

type object = unstructured.Unstructured

// side is the model, or a real API server, to which the same requests go.
type side struct {
	*testing.T
	client    dynamic.Interface
	namespace string
	kind      kubeapi.Kind
	last      map[string]*object // as it was answered, by name
}

func (s *side) resource() dynamic.ResourceInterface { return s.of(s.kind) }

func (s *side) of(kind kubeapi.Kind) dynamic.ResourceInterface {
	if kind.Cluster {
		return s.client.Resource(kind.GroupVersionResource)
	}
	return s.client.Resource(kind.GroupVersionResource).Namespace(s.namespace)
}

// name returns the name of an object, which tests that run side by side do not share.
func (s *side) name(short string) string { return s.namespace + "-" + short }

// object returns an object of a kind with this content.
func (s *side) object(kind kubeapi.Kind, short, value string) *object {
	o := &object{Object: map[string]any{}}
	o.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind))
	o.SetName(s.name(short))
	o.SetLabels(map[string]string{"of": s.namespace})
	setContent(o, value)
	return o
}

// setContent changes what the generation counts.
func setContent(o *object, value string) {
	switch o.GetKind() {
	case "ConfigMap":
		o.Object["data"] = map[string]any{"k": value}
	case "ManifestWork":
		manifest := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": "b"}, "data": map[string]any{"k": value}}
		o.Object["spec"] = map[string]any{"workload": map[string]any{"manifests": []any{manifest}}}
	default:
		o.Object["spec"] = map[string]any{"hubHash": value, "agentID": "agent", "manifestWorkName": "work"}
	}
}

func setStatus(o *object, reason string) {
	condition := map[string]any{"type": "Applied", "status": "True", "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
	if o.GetKind() == "AppliedManifestWork" {
		o.Object["status"] = map[string]any{"appliedResources": []any{map[string]any{"group": "", "version": "v1", "resource": "configmaps", "name": reason, "uid": "u"}}}
		return
	}
	o.Object["status"] = map[string]any{"conditions": []any{condition}}
}

// with returns the last answer about an object, changed.
func (s *side) with(short string, change func(*object)) *object {
	last := s.last[s.name(short)]
	if last == nil {
		s.Fatalf("no answer about %s", short)
	}
	o := last.DeepCopy()
	change(o)
	return o
}

// answer says what was answered, without what differs from server to server.
func (s *side) answer(o *object, err error) string {
	if err != nil {
		status, isStatus := err.(apierrors.APIStatus)
		if !isStatus {
			return err.Error()
		}
		return fmt.Sprint(status.Status().Code, " ", status.Status().Reason)
	}
	if o == nil {
		return "done"
	}
	before := s.last[o.GetName()]
	s.last[o.GetName()] = o
	said := map[string]any{"generation": o.GetGeneration(), "deleted": o.GetDeletionTimestamp() != nil, "finalizers": o.GetFinalizers(), "labels": o.GetLabels(), "owners": len(o.GetOwnerReferences())}
	if before != nil {
		said["new version"], said["new uid"] = before.GetResourceVersion() != o.GetResourceVersion(), before.GetUID() != o.GetUID()
	}
	for field, value := range o.Object {
		if field != "metadata" {
			said[field] = value
		}
	}
	text, err := json.Marshal(said)
	kit.NoError(s, err)
	said = nil
	kit.NoError(s, json.Unmarshal(text, &said))
	text, err = json.Marshal(withoutEmpty(said))
	kit.NoError(s, err)
	return strings.ReplaceAll(string(text), s.namespace, "NAMESPACE")
}

// withoutEmpty leaves out what says nothing: a server that decodes into types encodes their empty fields.
func withoutEmpty(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			switch inner := withoutEmpty(inner).(type) {
			case nil:
				delete(v, key)
			case map[string]any:
				if len(inner) == 0 {
					delete(v, key)
				}
			case []any:
				if len(inner) == 0 {
					delete(v, key)
				}
			}
		}
	case []any:
		for i := range v {
			v[i] = withoutEmpty(v[i])
		}
	}
	return value
}

// step is a request.
type step struct {
	name string
	do   func(*side) (*object, error)
}

func create(short string, change func(*object)) func(*side) (*object, error) {
	return func(s *side) (*object, error) {
		o := s.object(s.kind, short, "1")
		change(o)
		return s.resource().Create(s.Context(), o, metav1.CreateOptions{})
	}
}

func update(short string, change func(*object)) func(*side) (*object, error) {
	return func(s *side) (*object, error) {
		return s.resource().Update(s.Context(), s.with(short, change), metav1.UpdateOptions{})
	}
}

func updateStatus(short string, change func(*object)) func(*side) (*object, error) {
	return func(s *side) (*object, error) {
		return s.resource().UpdateStatus(s.Context(), s.with(short, change), metav1.UpdateOptions{})
	}
}

func patch(short string, kind types.PatchType, text string, subresource ...string) func(*side) (*object, error) {
	return func(s *side) (*object, error) {
		return s.resource().Patch(s.Context(), s.name(short), kind, []byte(text), metav1.PatchOptions{}, subresource...)
	}
}

func remove(short string, options metav1.DeleteOptions) func(*side) (*object, error) {
	return func(s *side) (*object, error) {
		return nil, s.resource().Delete(s.Context(), s.name(short), options)
	}
}

func get(short string) func(*side) (*object, error) {
	return func(s *side) (*object, error) {
		return s.resource().Get(s.Context(), s.name(short), metav1.GetOptions{})
	}
}

func same(*object) {}

func stale(o *object) { o.SetResourceVersion("1") }

// steps are the requests about objects of one kind, one after the other.
func steps(kind kubeapi.Kind) []step {
	var all []step
	add := func(name string, do func(*side) (*object, error)) { all = append(all, step{name, do}) }
	add("create", create("a", same))
	add("create what is there", create("a", same))
	add("create with a version", create("b", func(o *object) { o.SetResourceVersion("7") }))
	add("create with what only the server sets", create("c", func(o *object) {
		o.SetUID("u")
		o.SetGeneration(9)
		o.SetDeletionTimestamp(ptr.To(metav1.Now()))
	}))
	add("create without a name", create("d", func(o *object) { o.SetName("") }))
	add("get", get("a"))
	add("get what is not there", get("missing"))
	add("update without a change", update("a", same))
	add("update", update("a", func(o *object) { setContent(o, "2") }))
	add("update a label", update("a", func(o *object) { o.SetLabels(map[string]string{"a": "b"}) }))
	add("update an old version", update("a", func(o *object) { stale(o); setContent(o, "3") }))
	add("update another uid", update("a", func(o *object) { o.SetUID("other"); setContent(o, "3") }))
	add("update what is not there", update("a", func(o *object) { o.SetName("missing") }))
	add("merge patch", patch("a", types.MergePatchType, `{"metadata":{"labels":{"c":"d"}}}`))
	add("the same merge patch", patch("a", types.MergePatchType, `{"metadata":{"labels":{"c":"d"}}}`))
	add("merge patch of an old version", patch("a", types.MergePatchType, `{"metadata":{"resourceVersion":"1","labels":{"c":"e"}}}`))
	add("merge patch of another uid", patch("a", types.MergePatchType, `{"metadata":{"uid":"other","labels":{"c":"e"}}}`))
	add("merge patch that removes", patch("a", types.MergePatchType, `{"metadata":{"labels":{"a":null,"c":null}}}`))
	add("merge patch of what is not there", patch("missing", types.MergePatchType, `{"metadata":{"labels":{"c":"d"}}}`))
	add("JSON patch", patch("a", types.JSONPatchType, `[{"op":"add","path":"/metadata/labels","value":{"e":"f"}}]`))
	add("JSON patch whose test fails", patch("a", types.JSONPatchType, `[{"op":"test","path":"/metadata/labels/e","value":"g"},{"op":"remove","path":"/metadata/labels/e"}]`))
	add("JSON patch of a path that is not there", patch("a", types.JSONPatchType, `[{"op":"remove","path":"/metadata/labels/other"}]`))
	if kind.Status {
		add("the status by an update of the object", update("a", func(o *object) { setStatus(o, "Mistake") }))
		add("update the status", updateStatus("a", func(o *object) { setStatus(o, "One"); setContent(o, "mistake") }))
		add("update the status without a change", updateStatus("a", same))
		add("update the status of an old version", updateStatus("a", func(o *object) { stale(o); setStatus(o, "Two") }))
		add("merge patch of the status", func(s *side) (*object, error) {
			o := s.with("a", func(o *object) { setStatus(o, "Three") })
			text, err := json.Marshal(map[string]any{"status": o.Object["status"], "metadata": map[string]any{"labels": nil}})
			kit.NoError(s, err)
			return patch("a", types.MergePatchType, string(text), "status")(s)
		})
		add("update, with a status", update("a", func(o *object) { setContent(o, "4"); setStatus(o, "Mistake") }))
	}
	add("dry run of an update", func(s *side) (*object, error) {
		return s.resource().Update(s.Context(), s.with("a", func(o *object) { setContent(o, "dry") }), metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	})
	add("get after the dry run", get("a"))
	add("delete another uid", remove("a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(types.UID("other"))}}))
	add("delete an old version", remove("a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: ptr.To("1")}}))
	add("add a finalizer", patch("a", types.MergePatchType, `{"metadata":{"finalizers":["example.com/a","example.com/b"]}}`))
	add("delete", remove("a", metav1.DeleteOptions{}))
	add("get what is being deleted", get("a"))
	add("delete once more", remove("a", metav1.DeleteOptions{}))
	add("get once more", get("a"))
	add("update what is being deleted", update("a", func(o *object) { setContent(o, "5") }))
	add("remove a finalizer", patch("a", types.MergePatchType, `{"metadata":{"finalizers":["example.com/b"]}}`))
	add("add a finalizer to what is being deleted", patch("a", types.MergePatchType, `{"metadata":{"finalizers":["example.com/b","example.com/c"]}}`))
	add("remove the last finalizer", patch("a", types.JSONPatchType, `[{"op":"remove","path":"/metadata/finalizers"}]`))
	add("get what is gone", get("a"))
	add("delete what is gone", remove("a", metav1.DeleteOptions{}))
	add("create it again", create("a", same))
	add("delete what has no finalizer", remove("a", metav1.DeleteOptions{}))
	add("get it", get("a"))
	return all
}

// sides are both servers.
func sides(t *testing.T, kind kubeapi.Kind) [2]*side {
	all := make([]kubeapi.Kind, 0, len(kinds))
	for _, k := range kinds {
		all = append(all, k)
	}
	model := &rest.Config{Host: "http://model", Transport: kubeapi.New(all...).Via(kubeapi.Faults{})}
	namespace := plane.Namespace(t, "model")
	var both [2]*side
	for i, config := range []*rest.Config{model, plane.REST()} {
		config.QPS = -1
		client, err := dynamic.NewForConfig(config)
		kit.NoError(t, err)
		both[i] = &side{T: t, client: client, namespace: namespace, kind: kind, last: map[string]*object{}}
	}
	return both
}

// TestAsAPIServer: the model answers each request as a real API server does, and its watches show the same.
func TestAsAPIServer(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			both := sides(t, kind)
			var watches [2]watch.Interface
			for i, s := range both {
				list, err := s.resource().List(t.Context(), metav1.ListOptions{})
				kit.NoError(t, err)
				watches[i], err = s.resource().Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion(), LabelSelector: "of=" + s.namespace})
				kit.NoError(t, err)
				defer watches[i].Stop()
			}
			for _, step := range steps(kind) {
				model, api := both[0].answer(step.do(both[0])), both[1].answer(step.do(both[1]))
				if diff := cmp.Diff(api, model); diff != "" {
					t.Errorf("%s: (-API server +model)\n%s", step.name, diff)
				}
			}
			for _, s := range both {
				_, err := create("last", same)(s)
				kit.NoError(t, err)
			}
			model, api := seen(both[0], watches[0]), seen(both[1], watches[1])
			if diff := cmp.Diff(api, model); diff != "" {
				t.Errorf("watch: (-API server +model)\n%s", diff)
			}
		})
	}
}

// seen returns what a watch shows until there is an object "last".
func seen(s *side, w watch.Interface) (events []string) {
	for {
		select {
		case event := <-w.ResultChan():
			o, ok := event.Object.(*object)
			if !ok {
				s.Fatalf("the watch says %+v", event)
			}
			short := strings.TrimPrefix(o.GetName(), s.namespace+"-")
			events = append(events, fmt.Sprintf("%s %s, generation %d, deleted %v, finalizers %v, labels %d",
				event.Type, short, o.GetGeneration(), o.GetDeletionTimestamp() != nil, o.GetFinalizers(), len(o.GetLabels())))
			if short == "last" {
				return events
			}
		case <-s.Context().Done():
			s.Fatal("the watch does not show the last object")
		}
	}
}

// TestGarbage: what becomes of objects whose owner is deleted is what the garbage collector of a real control plane makes of them.
func TestGarbage(t *testing.T) {
	configMaps := kinds["ConfigMap"]
	for name, test := range map[string]struct {
		policy   metav1.DeletionPropagation
		block    bool
		prepare  func(owned, other *object)
		owners   int // of the object at the end; -1: it is gone
		deleting bool
		stays    bool // the owner
	}{
		"background":                    {policy: metav1.DeletePropagationBackground, owners: -1},
		"orphan":                        {policy: metav1.DeletePropagationOrphan, owners: 0},
		"foreground":                    {policy: metav1.DeletePropagationForeground, block: true, owners: -1},
		"foreground, with a finalizer":  {policy: metav1.DeletePropagationForeground, block: true, prepare: finalized, owners: 1, deleting: true, stays: true},
		"foreground, without blocking":  {policy: metav1.DeletePropagationForeground, prepare: finalized, owners: 1, deleting: true},
		"background, with a finalizer":  {policy: metav1.DeletePropagationBackground, prepare: finalized, owners: 1, deleting: true},
		"background, with an owner yet": {policy: metav1.DeletePropagationBackground, prepare: twoOwners, owners: 1},
	} {
		t.Run(name, func(t *testing.T) {
			for i, s := range sides(t, kinds["AppliedManifestWork"]) {
				server := []string{"model", "API server"}[i]
				owner, err := create("owner", same)(s)
				kit.NoError(t, err)
				other, err := create("other", same)(s)
				kit.NoError(t, err)
				owned := s.object(configMaps, "owned", "1")
				owned.SetOwnerReferences([]metav1.OwnerReference{reference(owner, test.block)})
				if test.prepare != nil {
					test.prepare(owned, other)
				}
				_, err = s.of(configMaps).Create(t.Context(), owned, metav1.CreateOptions{})
				kit.NoError(t, err)
				_, err = remove("owner", metav1.DeleteOptions{PropagationPolicy: &test.policy})(s)
				kit.NoError(t, err)
				kit.True(t, "the garbage collector of the "+server, func() bool {
					_, err := get("owner")(s)
					gone := apierrors.IsNotFound(err)
					now, err := s.of(configMaps).Get(t.Context(), owned.GetName(), metav1.GetOptions{})
					if apierrors.IsNotFound(err) {
						return test.owners == -1 && gone
					}
					return err == nil && gone != test.stays && len(now.GetOwnerReferences()) == test.owners && (now.GetDeletionTimestamp() != nil) == test.deleting
				})
			}
		})
	}
}

func finalized(owned, _ *object) { owned.SetFinalizers([]string{"example.com/a"}) }

func twoOwners(owned, other *object) {
	owned.SetOwnerReferences(append(owned.GetOwnerReferences(), reference(other, false)))
}

func reference(owner *object, block bool) metav1.OwnerReference {
	r := metav1.OwnerReference{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID()}
	if block {
		r.BlockOwnerDeletion = ptr.To(true)
	}
	return r
}

// TestApply: server-side apply of ConfigMaps does what that of a real API server does, and records the same managers.
func TestApply(t *testing.T) {
	both := sides(t, kinds["ConfigMap"])
	apply := func(manager, text string, force bool) func(*side) (*object, error) {
		return func(s *side) (*object, error) {
			text := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},%s}`, s.name("a"), text)
			return s.resource().Patch(s.Context(), s.name("a"), types.ApplyPatchType, []byte(text), metav1.PatchOptions{FieldManager: manager, Force: &force})
		}
	}
	for _, step := range []step{
		{"create", apply("one", `"data":{"a":"1","b":"1"}`, false)},
		{"the same", apply("one", `"data":{"a":"1","b":"1"}`, false)},
		{"another manager", apply("two", `"data":{"c":"1"}`, false)},
		{"a conflict", apply("two", `"data":{"a":"2","c":"1"}`, false)},
		{"the same value", apply("two", `"data":{"b":"1","c":"1"}`, false)},
		{"by force", apply("two", `"data":{"a":"2","c":"1"}`, true)},
		{"what it no longer applies", apply("two", `"data":{"c":"1"}`, false)},
		{"what it no longer applies, and nobody else", apply("one", `"data":{"b":"1"}`, false)},
		{"an update takes a field", update("a", func(o *object) { o.Object["data"] = map[string]any{"b": "2", "c": "1"} })},
		{"and it is in conflict", apply("one", `"data":{"b":"1"}`, false)},
	} {
		model, api := both[0].answer(step.do(both[0])), both[1].answer(step.do(both[1]))
		if diff := cmp.Diff(api, model); diff != "" {
			t.Errorf("%s: (-API server +model)\n%s", step.name, diff)
		}
		if diff := cmp.Diff(managers(both[1]), managers(both[0])); diff != "" {
			t.Errorf("%s: managers: (-API server +model)\n%s", step.name, diff)
		}
	}
}

// managers returns who manages which data of the object.
func managers(s *side) (all []string) {
	for _, m := range s.last[s.name("a")].GetManagedFields() {
		all = append(all, fmt.Sprintf("%s %s %s", m.Manager, m.Operation, m.FieldsV1.GetRawString()))
	}
	slices.Sort(all)
	return all
}
