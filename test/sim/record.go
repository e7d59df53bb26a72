package sim

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/sim/kubeapi"
)

// record follows the writes to all API servers, and finds what must never be, whatever fails:
//
//   - an agent deletes an object that its work has declared without a break, or for longer than patience since,
//   - an agent writes an older declaration of an object over a newer one (where specs are signed: without, a broker that
//     delivers an old spec again, of a work that was deleted since, has it applied until the next digest),
//   - an agent writes an object that is ReadOnly, changes one that is CreateOnly, or takes one from somebody else that is
//     applied without force,
//   - a work is gone from the hub while an object of it is on its cluster that is not orphaned, and not there again because the
//     cluster was restored since its agent has removed it,
//   - a program sends requests without end.
//
// It is safe for concurrent use.
type record struct {
	violations *violations
	signed     bool // nothing that is replayed counts

	mu       sync.Mutex
	declared map[string]*declaration    // by cluster/object
	objects  map[string]map[string]bool // names of the objects of each cluster; true: some work owns it
	wishes   map[string]wish            // by cluster/object/value
	orphaned map[string]bool            // cluster/object that some work has left, or would
	values   map[string]int             // by cluster/object, the newest declaration that an agent has written
	requests map[string]int             // of each program, in minute
	until    map[string]time.Time       // until when older declarations may come back to a cluster, see rewound
	restored map[string]bool            // UIDs of works that were restored, and names of those that a restore has removed: objects of their names may be of others
	removed  map[string]bool            // cluster/work whose deletion the agent has carried out
	returned map[string]bool            // cluster/object that is there, or some work's, again since a restore of its cluster, after the deletion was carried out: the agent may say so before its watch shows the restore
	minute   time.Time
	meddling meddling
}

// declaration is what the works of a cluster say of an object.
type declaration struct {
	now   bool      // some work declares it, or the last that did has left it
	since time.Time // since when that is so again, after a time when it was not or was rewound; zero: it was so since it was first declared
}

// patience is how long it takes at most until all have learned what is declared again, or that something is as it was before.
const patience = 5 * time.Minute

// again notes that some work declares the object.
func (d *declaration) again() {
	if !d.now {
		d.now, d.since = true, time.Now()
	}
}

func newRecord(v *violations, signed bool) *record {
	return &record{violations: v, signed: signed, declared: map[string]*declaration{}, objects: map[string]map[string]bool{}, wishes: map[string]wish{}, orphaned: map[string]bool{}, values: map[string]int{}, requests: map[string]int{}, restored: map[string]bool{}, until: map[string]time.Time{},
		removed: map[string]bool{}, returned: map[string]bool{}, meddling: newMeddling()}
}

// maxRequests is how many requests a program may send in a minute. It is a bound for loops without a pause, not for
// efficiency: that is counted elsewhere.
const maxRequests = 300

// request counts a request of a program. It returns how long the request has to wait: until the minute is over once there are far too many,
// so that a loop without a pause does not go on for the rest of the run.
func (r *record) request(program string) (wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if minute := now.Truncate(time.Minute); minute != r.minute {
		r.minute = minute
		clear(r.requests)
	}
	r.requests[program]++
	switch n := r.requests[program]; {
	case n == maxRequests:
		r.violations.add(fmt.Sprintf("%s sends more than %d requests in a minute", program, maxRequests))
	case n > 2*maxRequests:
		return r.minute.Add(time.Minute).Sub(now)
	}
	return 0
}

// hubWrite follows a write to the hub's API.
func (r *record) hubWrite(w kubeapi.Write) {
	if w.Kind.Kind == "ManifestWork" {
		r.mu.Lock()
		r.meddling.hubWrite(w)
		r.mu.Unlock()
	}
	if w.Kind.Kind != "ManifestWork" || w.User != kubeapi.RestoredBy && w.Before != nil && w.After != nil && w.Before.GetGeneration() == w.After.GetGeneration() { // people have changed nothing
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case w.User == kubeapi.RestoredBy && w.After != nil:
		r.restored[string(w.After.GetUID())] = true
	case w.User == kubeapi.RestoredBy: // its objects are there when another one takes its name
		r.restored[w.Before.GetNamespace()+"/"+w.Before.GetName()] = true
	}
	work := workFrom(w.After)
	before, after := declaredBy(workFrom(w.Before)), declaredBy(work)
	for object := range before {
		_, name, _ := strings.Cut(object, "/")
		switch _, still := after[object]; {
		case still:
		case work != nil && orphans(work, name):
			r.orphaned[object] = true
		default:
			r.declared[object].now = false
		}
	}
	// An agent that hears of this generation alone does not know that one before has left an object. And a work that takes the name of one
	// that a restore has removed, and that the agent holds, or whose objects a restore has brought back, says what becomes of that one's objects.
	if work != nil {
		takes := w.Before != nil || r.restored[work.Namespace+"/"+work.Name]
		for object, d := range r.declared {
			switch _, still := after[object]; {
			case still || !strings.HasPrefix(object, work.Namespace+"/"+work.Name+"-") || !takes && !r.returned[object]:
			case orphans(work, object[strings.Index(object, "/")+1:]):
				r.orphaned[object] = true // likewise, that one before has not
			default:
				d.now = false
			}
		}
	}
	for object, i := range after {
		r.wishes[object+"/"+i.value] = i
		r.orphaned[object] = r.orphaned[object] || i.orphaned
		if d := r.declared[object]; d != nil {
			d.again()
		} else {
			r.declared[object] = &declaration{now: true}
		}
	}
	if w.After == nil && w.User != kubeapi.RestoredBy && !r.meddling.unlocked[string(w.Before.GetUID())] && !r.restored[string(w.Before.GetUID())] && !r.restored[w.Before.GetNamespace()+"/"+w.Before.GetName()] {
		cluster := w.Before.GetNamespace()
		for name, owned := range r.objects[cluster] {
			if strings.HasPrefix(name, w.Before.GetName()+"-") && !r.returned[cluster+"/"+name] && (owned || !r.orphaned[cluster+"/"+name] && !r.meddling.freed[cluster+"/"+name]) {
				r.violations.add(fmt.Sprintf("work %s/%s is gone from the hub, and its ConfigMap %s is on the cluster", cluster, w.Before.GetName(), name))
			}
		}
	}
}

// declaredBy returns what a work wants of its ConfigMaps, by cluster/object; nothing if it is being deleted.
func declaredBy(work *workv1.ManifestWork) map[string]wish {
	found := map[string]wish{}
	if work == nil || work.DeletionTimestamp != nil {
		return found
	}
	for name, i := range wishes(work) {
		found[work.Namespace+"/"+name] = i
	}
	return found
}

// mayStay reports whether an object may be on a cluster that no work declares.
func (r *record) mayStay(cluster, name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.orphaned[cluster+"/"+name] || r.meddling.freed[cluster+"/"+name]
}

// overstepped returns what an agent may not do to an object; empty: nothing.
func (i wish) overstepped(before, after *kubeapi.Object) string {
	switch {
	case valueOf(before) == valueOf(after):
	case i.strategy == workv1.UpdateStrategyTypeReadOnly:
		return "writes"
	case i.strategy == workv1.UpdateStrategyTypeCreateOnly && before != nil:
		return "changes"
	case i.yields() && valueOf(before) == foreign:
		return "takes from somebody else"
	}
	return ""
}

// written follows what an agent writes: people declare a greater number each time.
func (r *record) written(object string, w kubeapi.Write) {
	value, err := strconv.Atoi(valueOf(w.After))
	if w.User != "agent" || err != nil {
		return
	}
	i := r.wishes[object+"/"+valueOf(w.After)]
	if verb := i.overstepped(w.Before, w.After); verb != "" {
		r.violations.add(fmt.Sprintf("agent %s ConfigMap %s, whose strategy is %s", verb, object, i))
	}
	if cluster, _, _ := strings.Cut(object, "/"); time.Now().Before(r.until[cluster]) {
		r.values[object] = value
	}
	if newest := r.values[object]; r.signed && value < newest {
		r.violations.add(fmt.Sprintf("agent writes declaration %d of ConfigMap %s over declaration %d", value, object, newest))
	}
	r.values[object] = max(value, r.values[object])
}

// rewound notes that an agent, its cluster or its hub is as it was before: until all have learned of that, what was declared then
// may come back.
func (r *record) rewound(cluster string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until[cluster] = time.Now().Add(patience)
	for object, d := range r.declared {
		if strings.HasPrefix(object, cluster+"/") {
			d.since = time.Now()
		}
	}
}

// clusterWrite follows a write to the API of a cluster.
func (r *record) clusterWrite(cluster string, w kubeapi.Write) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if prefix, mayGo := r.meddling.clusterWrite(cluster, w); mayGo {
		for object, d := range r.declared {
			if strings.HasPrefix(object, prefix) {
				d.since = time.Now()
			}
		}
	}
	if w.Kind.Kind == "AppliedManifestWork" && w.User == "agent" {
		_, work, _ := strings.Cut(cmp.Or(w.Before, w.After).GetName(), "-")
		r.removed[cluster+"/"+work] = w.After == nil
	}
	if w.Kind.Kind != "ConfigMap" {
		return
	}
	object := cluster + "/" + cmp.Or(w.Before, w.After).GetName()
	switch {
	case w.User == kubeapi.RestoredBy:
		back := w.After != nil && (w.Before == nil || !owned(w.Before.GetOwnerReferences()) && owned(w.After.GetOwnerReferences()))
		r.returned[object] = r.returned[object] && w.After != nil || back && r.removed[object[:strings.LastIndex(object, "-")]]
	case w.User == "agent" || w.After == nil:
		delete(r.returned, object)
	}
	if r.objects[cluster] == nil {
		r.objects[cluster] = map[string]bool{}
	}
	if w.After != nil {
		r.objects[cluster][w.After.GetName()] = owned(w.After.GetOwnerReferences())
		r.written(object, w)
		return
	}
	name := w.Before.GetName()
	delete(r.objects[cluster], name)
	if d := r.declared[object]; w.User != "people" && w.User != kubeapi.RestoredBy && (d == nil || d.now && time.Since(d.since) > patience) {
		user := w.User
		if user == "" {
			user = "the garbage collector"
		}
		r.violations.add(fmt.Sprintf("%s deletes ConfigMap %s of %s, which was declared all the time", user, name, cluster))
	}
}
