package sim

import (
	"fmt"
	"sync"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/workwire/workwire/test/sim/kubeapi"
)

// uidAnnotation of an AppliedManifestWork has the UID of its work.
const uidAnnotation = "workwire.dev/work-uid"

// undone finds works that an agent brings back after it has carried out their deletion, without having been sent
// them again. It is safe for concurrent use.
type undone struct {
	violations *violations

	mu        sync.Mutex
	deleted   map[string]bool            // UIDs of works that are deleted at the hub, or gone
	deletions map[string]map[string]bool // by cluster and UID, what its agent was told to delete; true: it has done so
}

func newUndone(v *violations) *undone {
	return &undone{violations: v, deleted: map[string]bool{}, deletions: map[string]map[string]bool{}}
}

// hubWrite follows a write to the hub's API.
func (u *undone) hubWrite(w kubeapi.Write) {
	if w.Kind.Kind != "ManifestWork" {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if w.After == nil {
		u.deleted[string(w.Before.GetUID())] = true
		return
	}
	uid := string(w.After.GetUID())
	u.deleted[uid] = w.After.GetDeletionTimestamp() != nil
	if w.User == kubeapi.RestoredBy || w.Before == nil { // the works of a name have one UID at a source
		for _, told := range u.deletions {
			delete(told, uid)
		}
	}
}

// started forgets what an agent was told before: it may have been killed before it had kept that.
func (u *undone) started(cluster string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.deletions[cluster] = map[string]bool{}
}

// received follows what the agent of a cluster is sent.
func (u *undone) received(cluster string, e cloudevents.Event) {
	uid, _ := e.Extensions()["resourceid"].(string)
	u.mu.Lock()
	defer u.mu.Unlock()
	told := u.deletions[cluster]
	if told == nil || !u.deleted[uid] {
		return
	}
	done, known := told[uid]
	switch _, deletion := e.Extensions()["deletiontimestamp"]; {
	case deletion && !known:
		told[uid] = false
	case !deletion && done: // an old spec: only the next digest can tell that from a new one
		delete(told, uid)
	}
}

// clusterWrite follows a write to the API of a cluster.
func (u *undone) clusterWrite(cluster string, w kubeapi.Write) {
	if w.Kind.Kind != "AppliedManifestWork" || w.User == kubeapi.RestoredBy {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	told := u.deletions[cluster]
	switch {
	case w.After == nil:
		uid := w.Before.GetAnnotations()[uidAnnotation]
		if _, known := told[uid]; known {
			told[uid] = true
		}
	case w.Before == nil && told[w.After.GetAnnotations()[uidAnnotation]]:
		u.violations.add(fmt.Sprintf("the agent of %s brings work %s back, whose deletion it has carried out", cluster, w.After.GetAnnotations()[uidAnnotation]))
	}
}
