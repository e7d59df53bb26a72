package clusters

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

const (
	// maxHeld is the maximum number of held works of a cluster that are remembered.
	maxHeld = 20_000
	// heldQuiet is how long nothing must change before the ManagedCluster shows the held works, so that
	// a burst of statuses costs one write. It is heldPatience while the agent has not reported on all
	// works that it lists.
	heldQuiet    = 2 * time.Second
	heldPatience = 30 * time.Second
)

// heldWork is a work that an agent keeps although the hub does not know it.
type heldWork struct {
	uid        types.UID
	name       string
	generation wire.Generation
	reason     string // of the work's condition DeletionHeld
}

// heldWorks is what is known of the held works of one cluster. An agent lists works in a spec resync
// request; of those that the hub does not know it reports that their deletion is held, or Deleted.
type heldWorks struct {
	works      map[types.UID]heldWork
	byName     map[string]types.UID
	unreported map[types.UID]struct{} // listed, and neither held nor deleted yet
	// listed is whether the agent has listed all its works since this process started.
	listed bool
	// released has the works that were released in this process, with whether they are deleted.
	released map[types.UID]bool
	changed  time.Time
	sorted   []heldWork // works by name; nil: to be made again
}

// heldOf returns the held works of e, which it creates. mu is held.
func (e *knownCluster) heldOf() *heldWorks {
	if e.held == nil {
		e.held = &heldWorks{
			works: map[types.UID]heldWork{}, byName: map[string]types.UID{},
			unreported: map[types.UID]struct{}{}, released: map[types.UID]bool{},
		}
	}
	return e.held
}

// touch notes a change.
func (h *heldWorks) touch(now time.Time) { h.changed, h.sorted = now, nil }

func (h *heldWorks) put(w heldWork) {
	h.works[w.uid], h.byName[w.name] = w, w.uid
	delete(h.unreported, w.uid)
}

func (h *heldWorks) remove(uid types.UID) (removed bool) {
	_, unreported := h.unreported[uid]
	delete(h.unreported, uid)
	w, held := h.works[uid]
	if held {
		delete(h.works, uid)
		if h.byName[w.name] == uid {
			delete(h.byName, w.name)
		}
	}
	return held || unreported
}

func uidsOf(listed []wire.SpecVersion) map[types.UID]struct{} {
	uids := make(map[types.UID]struct{}, len(listed))
	for i := range listed {
		uids[listed[i].UID] = struct{}{}
	}
	return uids
}

// list handles the works that an agent has listed and the hub does not know. all reports whether the
// agent listed all its works.
func (h *heldWorks) list(uids map[types.UID]struct{}, all bool, now time.Time) {
	if all {
		h.listed = true
		clear(h.unreported)
		for uid := range h.works {
			if _, ok := uids[uid]; !ok {
				h.remove(uid)
			}
		}
	}
	for uid := range uids {
		if len(h.unreported) == maxHeld {
			break
		}
		if _, held := h.works[uid]; !held {
			h.unreported[uid] = struct{}{}
		}
	}
	h.touch(now)
}

// report handles the status of a work that the hub does not know. It reports whether the work is
// newly held, and whether anything has changed.
func (h *heldWorks) report(s *wire.Status, now time.Time) (added, changed bool) {
	held := meta.FindStatusCondition(s.Status.Conditions, workv1.WorkDeletionHeld)
	before, known := h.works[s.UID]
	switch {
	case meta.IsStatusConditionTrue(s.Status.Conditions, workv1.WorkDeleted):
		if _, released := h.released[s.UID]; released {
			h.released[s.UID], changed = true, true
		}
		changed = h.remove(s.UID) || changed
	case held != nil && held.Status == "True":
		w := heldWork{uid: s.UID, name: s.Meta.Name, generation: s.Generation, reason: heldReason(held.Reason)}
		if known && before == w || !known && len(h.works) >= maxHeld {
			return false, false
		}
		if known {
			h.remove(s.UID)
		}
		if h.released[s.UID] {
			delete(h.released, s.UID) // it is back, as after a restore of the cluster: a release that names it deletes it again
		}
		h.put(w)
		added, changed = !known, true
	case known || meta.IsStatusConditionTrue(s.Status.Conditions, workv1.WorkDeleting):
		changed = h.remove(s.UID)
	}
	if changed {
		h.touch(now)
	}
	return added, changed
}

// heldReason returns the reason to remember, one of the two that there are: it goes into a condition of the ManagedCluster,
// of which the API server refuses all conditions if this one has a reason that is not valid.
func heldReason(reported string) string {
	if reported == workv1.ReasonSourceIdentityChanged {
		return reported
	}
	return workv1.ReasonSourceKnowsTooFew
}

// created handles a work that was created at the hub: it takes over the objects of a held one that
// has its UID or its name.
func (h *heldWorks) created(uid types.UID, name string, now time.Time) (changed bool) {
	changed = h.remove(uid)
	if other, ok := h.byName[name]; ok {
		changed = h.remove(other) || changed
	}
	if changed {
		h.touch(now)
	}
	return changed
}

// byNames returns the held works, sorted by name. It costs O(n log n) once for each change.
func (h *heldWorks) byNames() []heldWork {
	if h.sorted == nil {
		for _, w := range h.works {
			h.sorted = append(h.sorted, w)
		}
		slices.SortFunc(h.sorted, compareHeld)
	}
	return h.sorted
}

func compareHeld(a, b heldWork) int {
	return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(string(a.uid), string(b.uid)))
}

// heldView is what decideHeld needs to know of the held works of a cluster.
type heldView struct {
	// any is whether there is anything to decide.
	any bool
	// listed is whether the agent has listed its works since this process started; waiting is the
	// number of those that it has not reported on.
	listed  bool
	waiting int
	// works are the held ones that are not released, sorted by name.
	works []heldWork
	// released are those that are not deleted yet, and that the hub does not know by now.
	released []heldWork
	// settled is when the ManagedCluster may show them.
	settled time.Time
	// heard is when the agent was first heard from on the hub's present connection; zero: not yet.
	heard time.Time
}

// heldView returns the view of e; stored is its ManagedCluster. It is linear in the held works while
// some are released or not reported on. mu is held.
func (x *clusterIndex) heldView(name wire.ClusterName, e *knownCluster, stored *clusterv1.ManagedCluster) heldView {
	if stored == nil {
		return heldView{}
	}
	released := parseReleased(stored.Annotations[clusterv1.DeletingHeldWorksAnnotationKey])
	v := heldView{heard: e.heard}
	_, asked := stored.Annotations[clusterv1.DeleteHeldWorksAnnotationKey]
	v.any = e.held != nil || asked || len(released) > 0 ||
		meta.FindStatusCondition(stored.Status.Conditions, clusterv1.ManagedClusterConditionWorksHeld) != nil
	if !v.any {
		return v
	}
	h := e.heldOf()
	v.listed, v.waiting, v.works = h.listed, len(h.unreported), h.byNames()
	if len(released) > 0 {
		v.works = slices.Clone(v.works)
	}
	for _, w := range released {
		if _, ok := h.unreported[w.uid]; ok {
			v.waiting--
		}
		if !h.released[w.uid] && !x.known(name, w.uid, w.name) {
			v.released = append(v.released, w)
		}
	}
	if len(released) > 0 {
		isReleased := make(map[types.UID]bool, len(released))
		for _, w := range released {
			isReleased[w.uid] = true
		}
		v.works = slices.DeleteFunc(v.works, func(w heldWork) bool { return isReleased[w.uid] })
	}
	v.settled = h.changed.Add(heldQuiet)
	if v.waiting > 0 {
		v.settled = h.changed.Add(heldPatience)
	}
	return v
}

// known reports whether the hub has a work of a cluster with this UID, or with this name.
func (x *clusterIndex) known(cluster wire.ClusterName, uid types.UID, name string) bool {
	if work, ok := x.works.ByUID(uid); ok && work.Namespace == string(cluster) {
		return true
	}
	_, ok := x.works.Get(types.NamespacedName{Namespace: string(cluster), Name: name})
	return ok
}

// keepsHeld reports whether the works that the agent of a cluster keeps are remembered: those of a
// cluster that is registered and accepted. The agent lists them again when that begins.
func (x *clusterIndex) keepsHeld(stored *clusterv1.ManagedCluster) bool {
	return stored != nil && x.policy.accepts(stored)
}

// unknownListed handles the works that the agent of a cluster has listed and the hub does not know.
func (x *clusterIndex) unknownListed(name wire.ClusterName, listed []wire.SpecVersion, all bool, now time.Time) {
	uids := uidsOf(listed) // before mu is locked: a list may be long
	x.mu.Lock()
	defer x.mu.Unlock()
	e, ok := x.entries[name]
	stored := x.stored(name)
	if !ok || !x.keepsHeld(stored) || e.held == nil && len(listed) == 0 && !x.heldView(name, e, stored).any {
		return
	}
	e.heldOf().list(uids, all, now)
	x.enqueue(name, e)
}

// unknownReported handles the status of a work that the hub does not know. It reports whether the
// work is newly held.
func (x *clusterIndex) unknownReported(s *wire.Status, now time.Time) (added bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, ok := x.entries[s.Cluster]
	if !ok || !x.keepsHeld(x.stored(s.Cluster)) || e.held == nil && !meta.IsStatusConditionTrue(s.Status.Conditions, workv1.WorkDeletionHeld) {
		return false
	}
	if x.known(s.Cluster, s.UID, s.Meta.Name) {
		return false // not visible yet: it takes over the objects
	}
	h := e.heldOf()
	if _, known := h.works[s.UID]; !known && len(h.works) >= maxHeld {
		x.metrics.ignored.WithLabelValues("too_many_held").Inc()
	}
	added, changed := h.report(s, now)
	if changed {
		x.enqueue(s.Cluster, e)
	}
	return added
}

// workCreated handles a work that was created at the hub.
func (x *clusterIndex) workCreated(work *workv1.ManifestWork, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	name := wire.ClusterName(work.Namespace)
	if e, ok := x.entries[name]; ok && e.held != nil && e.held.created(work.UID, work.Name, now) {
		x.enqueue(name, e)
	}
}

// release notes that the deletion of works is recorded, and returns those for which that is new.
func (x *clusterIndex) release(name wire.ClusterName, works []heldWork) (first []heldWork) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, ok := x.entries[name]
	if !ok {
		return nil
	}
	h := e.heldOf()
	for _, w := range works {
		if _, before := h.released[w.uid]; before || x.known(name, w.uid, w.name) {
			continue
		}
		h.released[w.uid] = false
		if held, ok := h.works[w.uid]; ok {
			w = held
		}
		first = append(first, w)
	}
	return first
}
