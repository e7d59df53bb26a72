package sim

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/sim/kubeapi"
)

// namespace is where works have their objects.
const namespace = "default"

var background = context.Background()

// createWork creates a work that does not exist.
func (w *World) createWork() { w.create(w.anyWork()) }

// create creates a work if it does not exist.
func (w *World) create(c *cluster, name string) {
	works := w.people.WorkV1().ManifestWorks(string(c.name))
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: name}}
	w.fill(work)
	_, _ = works.Create(background, work, metav1.CreateOptions{}) // it exists, or the cluster has no namespace yet
}

func (w *World) anyWork() (*cluster, string) {
	return w.anyCluster(), workName(w.random.intN(w.o.Works))
}

func workName(i int) string { return "work" + strconv.Itoa(i) }

// fill declares some of the four ConfigMaps of a work, each with a value of its own.
func (w *World) fill(work *workv1.ManifestWork) {
	w.chooseStrategies(work)
	work.Spec.Workload.Manifests = nil
	for i := range 4 {
		if i > 0 && (w.o.Tight || w.random.chance(50)) {
			continue
		}
		w.values++
		text := configMap(fmt.Sprintf("%s-%d", work.Name, i), strconv.Itoa(w.values))
		work.Spec.Workload.Manifests = append(work.Spec.Workload.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: text}})
	}
}

// configMap returns a ConfigMap as a manifest.
func configMap(name, value string) []byte {
	text, err := json.Marshal(corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string]string{"value": value, "note": " Of " + value},
	})
	if err != nil {
		panic(err)
	}
	return text
}

func (w *World) changeWork() { w.change(w.anyWork()) }

// change changes a work if it exists.
func (w *World) change(c *cluster, name string) {
	works := w.people.WorkV1().ManifestWorks(string(c.name))
	work, err := works.Get(background, name, metav1.GetOptions{})
	if err != nil || work.DeletionTimestamp != nil {
		return
	}
	w.fill(work)
	_, _ = works.Update(background, work, metav1.UpdateOptions{})
}

// deleteWork deletes a work, of which all objects may be to stay at the last moment. A broker that lies may lose the spec that says so, and deliver the
// deletion.
func (w *World) deleteWork() {
	c, name := w.anyWork()
	works := w.people.WorkV1().ManifestWorks(string(c.name))
	if work, err := works.Get(background, name, metav1.GetOptions{}); err == nil && w.random.chance(50) && !w.liar.lies() && !ordinary(name) {
		if w.o.Keys != "" && c.agent.running != nil {
			w.startSlowly(c.agent)
		}
		work.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
		_, _ = works.Update(background, work, metav1.UpdateOptions{})
	}
	_ = works.Delete(background, name, metav1.DeleteOptions{})
}

// deleteSoon changes a work, and deletes it shortly afterwards.
func (w *World) deleteSoon() { w.changeAndDelete(w.anyWork()) }

func (w *World) changeAndDelete(c *cluster, name string) {
	w.change(c, name)
	works := w.people.WorkV1().ManifestWorks(string(c.name))
	w.later(5*time.Second, func() { _ = works.Delete(background, name, metav1.DeleteOptions{}) })
}

// deleteAll deletes all works of a cluster, whose objects somebody else's finalizers keep, and creates another one, which must not wait for them.
func (w *World) deleteAll() {
	c := w.anyCluster()
	w.advance(maxOutage) // until all are well
	objects, works := c.people.CoreV1().ConfigMaps(namespace), w.people.WorkV1().ManifestWorks(string(c.name))
	all, err := objects.List(background, metav1.ListOptions{})
	if err != nil {
		panic(err)
	}
	for i := range all.Items {
		_ = c.keep(&all.Items[i])
	}
	for i := range w.o.Works {
		_ = works.Delete(background, workName(i), metav1.DeleteOptions{})
	}
	w.advance(10 * time.Second)
	w.create(c, "another")
	w.advance(10 * time.Second)
	if _, err := objects.Get(background, "another-0", metav1.GetOptions{}); err != nil {
		w.violations.add("10 s after work " + string(c.name) + "/another was created, while deleted works wait for finalizers: " + err.Error())
	}
	w.letAllGo()
}

// startSlowly kills a program, and makes everything slow while it starts again: what sources send while they prove themselves counts in part.
func (w *World) startSlowly(p *program) {
	p.kill()
	w.later(10*time.Second, p.run)
	w.flaky.set(0, 2*time.Second, 0)
	w.later(30*time.Second, func() { w.flaky.set(0, 0, 0) })
}

// anyObject returns a ConfigMap of a cluster; nil if it has none.
func (w *World) anyObject() (*cluster, *corev1.ConfigMap) {
	c := w.anyCluster()
	found, err := c.people.CoreV1().ConfigMaps(namespace).List(background, metav1.ListOptions{})
	if err != nil || len(found.Items) == 0 {
		return c, nil
	}
	return c, &found.Items[w.random.intN(len(found.Items))]
}

// deleteObject deletes an object of a work on its cluster.
func (w *World) deleteObject() {
	if c, o := w.anyObject(); o != nil {
		_ = c.people.CoreV1().ConfigMaps(namespace).Delete(background, o.Name, metav1.DeleteOptions{})
	}
}

// changeObject changes an object of a work on its cluster.
func (w *World) changeObject() {
	if c, o := w.anyObject(); o != nil {
		o.Data = map[string]string{"value": foreign}
		_, _ = c.people.CoreV1().ConfigMaps(namespace).Update(background, o, metav1.UpdateOptions{})
	}
}

// keepObject has somebody else's finalizer keep an object of a work for a while. Half of these works are changed and deleted meanwhile: while the
// deletion waits, what was sent before may come late.
func (w *World) keepObject() {
	c, o := w.anyObject()
	if o == nil || len(o.Finalizers) > 0 || o.DeletionTimestamp != nil {
		return
	}
	if c.keep(o) != nil {
		return
	}
	if w.random.chance(50) {
		work, _, _ := strings.Cut(o.Name, "-")
		w.later(10*time.Second, func() { w.changeAndDelete(c, work) })
	}
	w.later(maxOutage, func() { w.letGo(c, o.Name) })
}

// keep puts somebody else's finalizer on an object.
func (c *cluster) keep(o *corev1.ConfigMap) error {
	o.Finalizers = []string{"example.com/keep"}
	_, err := c.people.CoreV1().ConfigMaps(namespace).Update(background, o, metav1.UpdateOptions{})
	return err
}

// letGo takes somebody else's finalizer off an object.
func (w *World) letGo(c *cluster, name string) {
	objects := c.people.CoreV1().ConfigMaps(namespace)
	if now, err := objects.Get(background, name, metav1.GetOptions{}); err == nil && len(now.Finalizers) > 0 {
		now.Finalizers = nil
		_, _ = objects.Update(background, now, metav1.UpdateOptions{})
	}
}

// letAllGo takes somebody else's finalizer off all objects: a backup may have brought some back.
func (w *World) letAllGo() {
	for _, c := range w.clusters {
		objects, err := c.people.CoreV1().ConfigMaps(namespace).List(background, metav1.ListOptions{})
		if err != nil {
			panic(err)
		}
		for i := range objects.Items {
			w.letGo(c, objects.Items[i].Name)
		}
	}
}

// refuseObjects has a webhook refuse the objects of a work, on all clusters, for a while. Somebody changes the work meanwhile.
func (w *World) refuseObjects() {
	c, name := w.anyWork()
	w.refuse(name)
	w.later(10*time.Second, func() { w.change(c, name) })
	w.later(maxOutage, func() { w.refuse("") })
}

// refuse has a webhook refuse the objects of a work from now on; empty: of none.
func (w *World) refuse(name string) {
	w.trace.note("webhook", "refuses the objects of "+cmp.Or(name, "nothing"))
	w.webhook.set(name)
}

// webhook refuses that the ConfigMaps of a work are written or deleted. It is safe for concurrent use.
type webhook struct {
	mu   sync.Mutex
	work string // empty: it refuses nothing
}

func (h *webhook) set(work string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.work = work
}

// refuse returns another reason each time, as webhooks do that name the request.
func (h *webhook) refuse(kind kubeapi.Kind, o *kubeapi.Object) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if kind.Kind != "ConfigMap" || h.work == "" || !strings.HasPrefix(o.GetName(), h.work+"-") {
		return ""
	}
	return "refused in request " + uuid.NewString()
}

// releaseHeld has agents delete the works that they hold because the hub does not know them, and accepts clusters: one whose ManagedCluster a
// restore has removed is registered again, and left to people.
func (w *World) releaseHeld() {
	clusters, err := w.people.ClusterV1().ManagedClusters().List(background, metav1.ListOptions{})
	if err != nil {
		panic(err)
	}
	for i := range clusters.Items {
		c := &clusters.Items[i]
		if !c.Spec.HubAcceptsClient {
			c.Spec.HubAcceptsClient = true
			w.trace.note("people", "accept "+c.Name)
			_, _ = w.people.ClusterV1().ManagedClusters().Update(background, c, metav1.UpdateOptions{})
			continue
		}
		held := meta.FindStatusCondition(c.Status.Conditions, clusterv1.ManagedClusterConditionWorksHeld)
		if held == nil || held.Status != metav1.ConditionTrue || c.Annotations[clusterv1.DeleteHeldWorksAnnotationKey] != "" {
			continue
		}
		_, value, found := strings.Cut(held.Message, clusterv1.DeleteHeldWorksAnnotationKey+"=")
		if !found {
			continue
		}
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, clusterv1.DeleteHeldWorksAnnotationKey, strings.TrimRight(strings.Fields(value)[0], ".,;"))
		w.trace.note("people", "have the works deleted that "+c.Name+" holds")
		_, _ = w.people.ClusterV1().ManagedClusters().Update(background, c, metav1.UpdateOptions{})
	}
}

// releaseOnClusters does the same on the clusters, for works that the hub has not heard of: that an agent holds a work is said
// once, and a broker may have lost it.
func (w *World) releaseOnClusters() {
	for _, c := range w.clusters {
		applied := c.works.WorkV1().AppliedManifestWorks()
		all, err := applied.List(background, metav1.ListOptions{})
		if err != nil {
			panic(err)
		}
		for i := range all.Items {
			if amw := &all.Items[i]; amw.Annotations[workv1.HeldAnnotation] != "" && amw.Annotations[workv1.ReleaseAnnotation] == "" {
				w.trace.note("people", "release "+amw.Name+" on "+string(c.name))
				amw.Annotations[workv1.ReleaseAnnotation] = "true"
				_, _ = applied.Update(background, amw, metav1.UpdateOptions{})
			}
		}
	}
}

func (w *World) anyAPI() *kubeapi.Server {
	if n := w.random.intN(len(w.clusters) + 1); n > 0 {
		return w.clusters[n-1].api
	}
	return w.hubAPI
}

// differences returns what is not on the clusters as the hub says, and what the hub does not say of it.
func (w *World) differences() []string {
	var found []string
	for _, c := range w.clusters {
		works, err := w.people.WorkV1().ManifestWorks(string(c.name)).List(background, metav1.ListOptions{})
		if err != nil {
			panic(err)
		}
		objects, err := c.people.CoreV1().ConfigMaps(namespace).List(background, metav1.ListOptions{})
		if err != nil {
			panic(err)
		}
		found = append(found, w.clusterDifferences(c, append(works.Items, w.ownWorksOf(c.name)...), objects.Items)...)
	}
	return found
}

func (w *World) clusterDifferences(c *cluster, works []workv1.ManifestWork, objects []corev1.ConfigMap) []string {
	var found []string
	have, wanted := map[string]*corev1.ConfigMap{}, map[string]bool{}
	for i := range objects {
		have[objects[i].Name] = &objects[i]
	}
	for i := range works {
		work := &works[i]
		all := wishes(work)
		yielded := slices.ContainsFunc(slices.Collect(maps.Keys(all)), func(name string) bool {
			return all[name].yields() && have[name] != nil && have[name].Data["value"] == foreign
		})
		found = append(found, workDifferences(c, work, yielded)...)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			wanted[name] = true
			if text := all[name].difference(have[name]); text != "" && work.DeletionTimestamp == nil {
				found = append(found, fmt.Sprintf("ConfigMap %s of %s %s", name, c.name, text))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		switch {
		case wanted[name] || !owned(have[name].OwnerReferences) && w.record.mayStay(string(c.name), name):
		case c.restored && w.sources.lacks(c.name, name): // a work that came back: its source may have forgotten it, and leaves it alone (docs/sdk.md)
		default:
			found = append(found, fmt.Sprintf("ConfigMap %s of %s is left over", name, c.name))
		}
	}
	return append(found, w.ownerDifferences(c, works, have)...)
}

// workDifferences returns what is wrong with the status of a work. If it has yielded an object, it must say that it conflicts
// with somebody else.
func workDifferences(c *cluster, work *workv1.ManifestWork, yielded bool) []string {
	name := fmt.Sprintf("work %s/%s of generation %d", c.name, work.Name, work.Generation)
	if work.DeletionTimestamp != nil {
		return []string{name + " is still being deleted"}
	}
	want, text := metav1.ConditionTrue, "not Applied"
	if yielded {
		want, text = metav1.ConditionFalse, "in conflict, and does not say so"
	}
	applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
	if applied == nil || applied.Status != want || applied.ObservedGeneration != work.Generation {
		return []string{fmt.Sprintf("%s is %s: %v", name, text, work.Status.Conditions)}
	}
	return nil
}
