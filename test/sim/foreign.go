package sim

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/test/sim/kubeapi"
)

// contest is an object of a cluster on which an operator undoes what the agent writes. It is safe for concurrent use.
type contest struct {
	mu      sync.Mutex
	object  string
	deletes bool // instead of changing it
}

func (c *contest) set(object string, deletes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.object, c.deletes = object, deletes
}

// contest has an operator undo what the agent writes to an object, each time, for a while: the agent must not do so as fast as it can.
func (w *World) contest() {
	c, o := w.anyObject()
	if o == nil {
		return
	}
	w.trace.note("people", "start an operator that undoes all writes to "+o.Name+" of "+string(c.name))
	c.contest.set(o.Name, w.random.chance(30))
	o.Data = map[string]string{"value": foreign} // it begins
	_, _ = c.people.CoreV1().ConfigMaps(namespace).Update(background, o, metav1.UpdateOptions{})
	w.later(2*maxOutage, func() {
		w.trace.note("people", "stop the operator on "+string(c.name))
		c.contest.set("", false)
	})
}

// answer undoes a write of the agent to the object that is contested.
func (c *cluster) answer(w kubeapi.Write) {
	if w.User != "agent" || w.Kind.Kind != "ConfigMap" || w.After == nil || valueOf(w.After) == foreign {
		return
	}
	c.contest.mu.Lock()
	defer c.contest.mu.Unlock()
	if c.contest.object != w.After.GetName() {
		return
	}
	name, deletes := w.After.GetName(), c.contest.deletes
	time.AfterFunc(20*time.Millisecond, func() {
		objects := c.people.CoreV1().ConfigMaps(namespace)
		if deletes {
			_ = objects.Delete(background, name, metav1.DeleteOptions{})
			return
		}
		if o, err := objects.Get(background, name, metav1.GetOptions{}); err == nil {
			o.Data = map[string]string{"value": foreign}
			_, _ = objects.Update(background, o, metav1.UpdateOptions{})
		}
	})
}

// relabelObject has somebody take an object's owner references or labels away, or give it others.
func (w *World) relabelObject() {
	c, o := w.anyObject()
	if o == nil {
		return
	}
	switch w.random.intN(4) {
	case 0:
		o.OwnerReferences = nil
	case 1:
		o.Labels = nil
	case 2: // another value of the agent's label would be a conflict for server-side apply without force
		metav1.SetMetaDataLabel(&o.ObjectMeta, "example.com/owner", "somebody")
	case 3: // one that does not exist: the garbage collector removes the reference, or the object if it is the only one
		if len(o.OwnerReferences) == 0 {
			return
		}
		o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "none", UID: "none"})
	}
	_, _ = c.people.CoreV1().ConfigMaps(namespace).Update(background, o, metav1.UpdateOptions{})
}

// deleteRecord has somebody delete an AppliedManifestWork: what it names goes with it, and is applied again.
func (w *World) deleteRecord() {
	c := w.anyCluster()
	records := c.works.WorkV1().AppliedManifestWorks()
	all, err := records.List(background, metav1.ListOptions{})
	if err != nil || len(all.Items) == 0 {
		return
	}
	policy := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground}[w.random.intN(2)]
	_ = records.Delete(background, all.Items[w.random.intN(len(all.Items))].Name, metav1.DeleteOptions{PropagationPolicy: &policy})
}

// changeRecord has somebody take from the status of an AppliedManifestWork what it says of objects.
func (w *World) changeRecord() {
	c := w.anyCluster()
	records := c.works.WorkV1().AppliedManifestWorks()
	all, err := records.List(background, metav1.ListOptions{})
	if err != nil || len(all.Items) == 0 {
		return
	}
	amw := &all.Items[w.random.intN(len(all.Items))]
	amw.Status.AppliedResources = nil
	_, _ = records.UpdateStatus(background, amw, metav1.UpdateOptions{})
}

// changeHub has somebody change what the hub has written: a status, its finalizer on a work that is not being deleted, or the labels of a cluster.
func (w *World) changeHub() {
	c := w.anyCluster()
	works := w.people.WorkV1().ManifestWorks(string(c.name))
	if w.random.chance(20) {
		clusters := w.people.ClusterV1().ManagedClusters()
		if mc, err := clusters.Get(background, string(c.name), metav1.GetOptions{}); err == nil {
			metav1.SetMetaDataLabel(&mc.ObjectMeta, "example.com/region", []string{"north", "south"}[w.random.intN(2)])
			_, _ = clusters.Update(background, mc, metav1.UpdateOptions{})
		}
		return
	}
	all, err := works.List(background, metav1.ListOptions{})
	if err != nil || len(all.Items) == 0 {
		return
	}
	work := &all.Items[w.random.intN(len(all.Items))]
	switch {
	case w.random.chance(60):
		work.Status.Conditions = slices.DeleteFunc(work.Status.Conditions, func(metav1.Condition) bool { return w.random.chance(70) })
		work.Status.ResourceStatus.Manifests = nil
		_, _ = works.UpdateStatus(background, work, metav1.UpdateOptions{})
	case work.DeletionTimestamp == nil:
		work.Finalizers = nil
		_, _ = works.Update(background, work, metav1.UpdateOptions{})
	}
}

// collectLate has the garbage collectors of all clusters be late, by up to two minutes, for a while.
func (w *World) collectLate() {
	w.trace.note("network", "garbage collectors are late")
	w.setCollectors(2 * time.Minute)
	w.later(2*maxOutage, func() {
		w.trace.note("network", "garbage collectors are fast again")
		w.setCollectors(0)
	})
}

func (w *World) setCollectors(most time.Duration) {
	for _, c := range w.clusters {
		var late func(string) time.Duration
		if most > 0 {
			late = func(name string) time.Duration { return w.flaky.random.of(string(c.name) + name).upTo(most) }
		}
		c.api.CollectLate(late)
	}
}

// meddling is what somebody has done to what hub and agent have written, as far as that excuses what becomes of it. Its caller locks.
type meddling struct {
	freed    map[string]bool // cluster/object from which an owner reference was taken: without it, the object is nobody's
	unlocked map[string]bool // UIDs of works from which the hub's finalizer was taken
}

func newMeddling() meddling { return meddling{map[string]bool{}, map[string]bool{}} }

// hubWrite follows a write of a work.
func (m meddling) hubWrite(w kubeapi.Write) {
	if w.Before != nil && w.After != nil {
		uid := string(w.After.GetUID())
		m.unlocked[uid] = len(w.After.GetFinalizers()) == 0 && (m.unlocked[uid] || w.User == people && len(w.Before.GetFinalizers()) > 0)
	}
}

// clusterWrite follows a write to the API of a cluster. It reports whether the objects whose names begin with prefix, as cluster/name, may go.
func (m meddling) clusterWrite(cluster string, w kubeapi.Write) (prefix string, mayGo bool) {
	name := cmp.Or(w.After, w.Before).GetName()
	switch {
	case w.Kind.Kind == "AppliedManifestWork":
		_, work, _ := strings.Cut(name, "-")
		return cluster + "/" + work + "-", w.User == people && w.After != nil && w.After.GetDeletionTimestamp() != nil
	case w.Kind.Kind != "ConfigMap":
		return "", false
	case w.After == nil || owned(w.After.GetOwnerReferences()):
		delete(m.freed, cluster+"/"+name)
	case w.User == people && w.Before != nil && owned(w.Before.GetOwnerReferences()):
		m.freed[cluster+"/"+name] = true
	}
	return cluster + "/" + name, w.User == people && w.After != nil && len(w.After.GetOwnerReferences()) > 1
}
