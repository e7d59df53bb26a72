package faults

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
)

// limit is within what time all must be as the model says after the last fault, on a busy machine.
// Backoffs end within a minute.
const limit = kit.Patience

// model is what must be true once all programs run and are connected.
type model struct {
	// want has each work as it was last written.
	want map[string]content
	// uids has the UIDs of works and objects, as "work/NAME" and "object/NAME", that must not
	// change.
	uids map[string]types.UID
	// meddled counts how often somebody else changed objects of a work since it was last written.
	meddled map[string]int
	// mayHold: the agent may hold the deletions of works that their source does not know, after old
	// data was restored. Unless keepStrays, the test releases them.
	mayHold    bool
	keepStrays bool
}

// content is what a work holds: ConfigMaps with these names and this value.
type content struct {
	value   string
	objects []string
}

func newModel() *model {
	return &model{want: map[string]content{}, uids: map[string]types.UID{}, meddled: map[string]int{}}
}

// spec returns the spec of a work with ConfigMaps named WORK-OBJECT, and what it is to hold.
func (w *world) spec(name, value string, objects ...string) (workv1.ManifestWorkSpec, content) {
	var spec workv1.ManifestWorkSpec
	want := content{value: value}
	for _, object := range objects {
		object = name + "-" + object
		want.objects = append(want.objects, object)
		spec.Workload.Manifests = append(spec.Workload.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{
			Raw: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":%q},"data":{"k":%q}}`,
				object, w.target, value)}})
		spec.ManifestConfigs = append(spec.ManifestConfigs, workv1.ManifestConfigOption{
			ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Namespace: w.target, Name: object},
			FeedbackRules:      []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{{Name: "k", Path: ".data.k"}}}},
		})
	}
	return spec, want
}

// put creates or updates a work.
func (w *world) put(name, value string, objects ...string) {
	w.Helper()
	spec, want := w.spec(name, value, objects...)
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	_, err := w.works.Create(w.Context(), work, create)
	if apierrors.IsAlreadyExists(err) {
		err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			current, err := w.works.Get(w.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			current.Spec = work.Spec
			_, err = w.works.Update(w.Context(), current, update)
			return err
		})
	}
	kit.NoError(w, err)
	delete(w.meddled, name)
	for _, gone := range w.want[name].objects {
		if !slices.Contains(want.objects, gone) {
			delete(w.uids, "object/"+gone)
		}
	}
	w.want[name] = want
}

// remove deletes a work.
func (w *world) remove(name string) {
	w.Helper()
	kit.NoError(w, w.works.Delete(w.Context(), name, deleted))
	w.forget(name)
}

// forget has the model expect that a work and its objects are deleted.
func (w *world) forget(name string) {
	for _, object := range w.want[name].objects {
		delete(w.uids, "object/"+object)
	}
	delete(w.uids, "work/"+name)
	delete(w.want, name)
}

// meddle changes or deletes an object on the cluster, as somebody else, if it is there already.
func (w *world) meddle(object string, remove bool) {
	w.Helper()
	var err error
	if remove {
		delete(w.uids, "object/"+object)
		err = w.configMaps.Delete(w.Context(), object, deleted)
	} else {
		_, err = w.configMaps.Patch(w.Context(), object, types.MergePatchType, []byte(`{"data":{"k":"foreign"}}`), metav1.PatchOptions{})
	}
	if !apierrors.IsNotFound(err) {
		kit.NoError(w, err)
	}
}

// converge waits until everything is as the model says, and remembers the UIDs.
func (w *world) converge() {
	w.Helper()
	took := kit.Within(w, limit, "all is as it was last written", func() error {
		w.Alive()
		return w.compare()
	})
	w.Logf("%d works are as they were last written after %.1f s", len(w.want), took.Seconds())
}

// compare returns every difference between the model and what is there. Another UID of an object
// that nobody asked to replace fails the test: it does not become right again.
func (w *world) compare() error {
	works, err := w.works.List(w.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	configMaps, err := w.configMaps.List(w.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	all, err := w.appliedWorks.List(w.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	objects := map[string]*corev1.ConfigMap{}
	for i := range configMaps.Items {
		if configMaps.Items[i].Name != "kube-root-ca.crt" {
			objects[configMaps.Items[i].Name] = &configMaps.Items[i]
		}
	}
	applied := map[string]*workv1.AppliedManifestWork{}
	for i := range all.Items {
		if all.Items[i].Spec.AgentID == w.cluster {
			applied[all.Items[i].Spec.ManifestWorkName] = &all.Items[i]
		}
	}
	seen := map[string]types.UID{}
	for i := range works.Items {
		seen["work/"+works.Items[i].Name] = works.Items[i].UID
	}
	for name, object := range objects {
		seen["object/"+name] = object.UID
	}
	for key, uid := range w.uids {
		if now, ok := seen[key]; ok && now != uid {
			w.Fatalf("%s has the UID %s, had %s, and nobody asked for another", key, now, uid)
		}
	}
	held := w.heldStrays(applied)
	present := maps.Clone(applied)
	for _, name := range held {
		delete(present, name)
		maps.DeleteFunc(objects, func(object string, _ *corev1.ConfigMap) bool { return strings.HasPrefix(object, name+"-") })
	}
	if err := w.differences(works.Items, objects, present); err != nil {
		return err
	}
	if len(held) > 0 && !w.keepStrays {
		return errors.Join(fmt.Errorf("deletions of %v were held", held), w.releaseStrays(applied, held))
	}
	w.mayHold = len(held) > 0
	w.uids = seen
	return nil
}

// differences returns every difference between the model, the works at the hub, and the objects and
// AppliedManifestWorks on the cluster.
func (w *world) differences(
	works []workv1.ManifestWork, objects map[string]*corev1.ConfigMap, applied map[string]*workv1.AppliedManifestWork,
) error {
	var errs []error
	differs := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	var names, configMaps []string
	for _, work := range works {
		names = append(names, work.Name)
		if err := statusOf(&work, w.want[work.Name]); err != nil {
			differs("%s at the hub, generation %d: %w", work.Name, work.Generation, err)
		}
	}
	for name, want := range w.want {
		configMaps = append(configMaps, want.objects...)
		record := applied[name]
		if record == nil || record.DeletionTimestamp != nil {
			differs("%s has no AppliedManifestWork, or one that is being deleted", name)
			continue
		}
		recorded := map[string]string{}
		for _, resource := range record.Status.AppliedResources {
			recorded[resource.Name] = resource.UID
		}
		for _, object := range want.objects {
			current := objects[object]
			switch {
			case current == nil:
				differs("%s is not on the cluster", object)
			case current.Data["k"] != want.value:
				differs("%s has %q, want %q", object, current.Data["k"], want.value)
			case len(current.OwnerReferences) != 1 || current.OwnerReferences[0].UID != record.UID:
				differs("%s is owned by %+v, want %s", object, current.OwnerReferences, record.UID)
			case recorded[object] != string(current.UID):
				differs("%s is recorded as %s, is %s", object, recorded[object], current.UID)
			}
		}
		if len(recorded) != len(want.objects) {
			differs("%s is recorded with %v, want %v", name, recorded, want.objects)
		}
	}
	for what, pair := range map[string][2][]string{
		"works at the hub":                    {names, slices.Collect(maps.Keys(w.want))},
		"objects on the cluster":              {slices.Collect(maps.Keys(objects)), configMaps},
		"AppliedManifestWorks on the cluster": {slices.Collect(maps.Keys(applied)), slices.Collect(maps.Keys(w.want))},
	} {
		slices.Sort(pair[0])
		slices.Sort(pair[1])
		if !slices.Equal(pair[0], pair[1]) {
			differs("%s: %s; want %s", what, strings.Join(pair[0], ", "), strings.Join(pair[1], ", "))
		}
	}
	return errors.Join(errs...)
}

// statusOf returns what the status of a work lacks to say that the cluster has want.
func statusOf(work *workv1.ManifestWork, want content) error {
	for _, kind := range []string{workv1.WorkApplied, workv1.WorkAvailable} {
		c := meta.FindStatusCondition(work.Status.Conditions, kind)
		if c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != work.Generation {
			return fmt.Errorf("%s is %+v", kind, c)
		}
	}
	manifests := work.Status.ResourceStatus.Manifests
	if len(manifests) != len(want.objects) {
		return fmt.Errorf("it has the status of %d manifests, want %d", len(manifests), len(want.objects))
	}
	for i, manifest := range manifests {
		values := manifest.StatusFeedbacks.Values
		if manifest.ResourceMeta.Name != want.objects[i] || !meta.IsStatusConditionTrue(manifest.Conditions, workv1.ManifestApplied) {
			return fmt.Errorf("%s is %+v", want.objects[i], manifest)
		}
		if len(values) != 1 || values[0].Value.String == nil || *values[0].Value.String != want.value {
			return fmt.Errorf("%s feeds back %+v, want %q", want.objects[i], values, want.value)
		}
	}
	return nil
}
