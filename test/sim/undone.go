package sim

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/api/meta"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/sim/kubeapi"
)

// uidAnnotation of an AppliedManifestWork has the UID of its work.
const uidAnnotation = "workwire.dev/work-uid"

// undone finds works that an agent brings back after it has carried out their deletion, without having been sent
// them again, or while it carries it out. It is safe for concurrent use.
type undone struct {
	violations *violations
	signed     bool // what is older than the deletion does not count

	mu        sync.Mutex
	deleted   map[string]bool                       // UIDs of works that are deleted at the hub, or gone
	deletions map[string]map[string]*toldDeletion   // by cluster and UID, what its agent was told to delete
	deleting  map[string]map[string]wire.SequenceID // by cluster and UID, when its agent said that it deletes a work
	foreign   map[string]bool                       // UIDs of AppliedManifestWorks that somebody else deletes
}

// toldDeletion is what an agent was told about one.
type toldDeletion struct {
	event cloudevents.Event
	done  bool
}

func newUndone(v *violations, signed bool) *undone {
	return &undone{violations: v, signed: signed, deleted: map[string]bool{}, deletions: map[string]map[string]*toldDeletion{},
		deleting: map[string]map[string]wire.SequenceID{}, foreign: map[string]bool{}}
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
	u.deletions[cluster], u.deleting[cluster] = map[string]*toldDeletion{}, map[string]wire.SequenceID{}
}

// said follows what the agent of a cluster says of works: one that it deletes is that until it is deleted.
func (u *undone) said(cluster string, e cloudevents.Event) {
	if kind, err := wire.ParseEventType(e.Type()); err != nil || kind.Data != wire.ManifestBundles && kind.Data != wire.Deltas {
		return
	}
	m, err := wire.Decode(e)
	if err != nil {
		return
	}
	var s *wire.Status
	switch m := m.(type) {
	case *wire.Status:
		s = m
	case *wire.StatusDelta:
		s = &m.Of
	default:
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	deleting, uid := u.deleting[cluster], string(s.UID)
	switch since, is := deleting[uid]; {
	case deleting == nil || is && s.Sequence < since: // it had said so when an answer came to what it said before
	case meta.IsStatusConditionTrue(s.Status.Conditions, workv1.WorkDeleted):
		delete(deleting, uid)
	case s.Meta.DeletionTimestamp != nil:
		deleting[uid] = s.Sequence
	case is:
		u.violations.add(fmt.Sprintf("the agent of %s deletes work %s no more, though it has not carried that out", cluster, uid))
	}
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
	was := told[uid]
	switch _, deletes := e.Extensions()["deletiontimestamp"]; {
	case deletes && (was == nil || !was.done):
		told[uid] = &toldDeletion{event: e}
	case !deletes && was != nil && was.done && u.counts(e, was.event):
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
	case w.User == people && w.After != nil && w.After.GetDeletionTimestamp() != nil:
		u.foreign[string(w.After.GetUID())] = true
	case w.After == nil && u.foreign[string(w.Before.GetUID())]: // the agent makes it again
	case w.After == nil:
		uid := w.Before.GetAnnotations()[uidAnnotation]
		if was := told[uid]; was != nil {
			was.done = true
		}
	case w.Before == nil && told[w.After.GetAnnotations()[uidAnnotation]].isDone():
		u.violations.add(fmt.Sprintf("the agent of %s brings work %s back, whose deletion it has carried out", cluster, w.After.GetAnnotations()[uidAnnotation]))
	}
}

func (d *toldDeletion) isDone() bool { return d != nil && d.done }

// counts reports whether a spec may bring a work back whose deletion was carried out: it is newer, or answers a question. Old ones of sources that know
// OCM's protocol alone count too. The deletion of a work that its source does not know has the generation of the last spec, which may come again: nobody
// can tell it from that of a source that has the work again (docs/reliability.md, What is not promised).
func (u *undone) counts(spec, deletion cloudevents.Event) bool {
	was, _ := wire.SignatureOf(deletion)
	is, err := wire.SignatureOf(spec)
	if u.signed && err == nil && !is.Time.After(was.Time) {
		return false
	}
	return spec.Extensions()["sourceidentity"] == nil || strings.Contains(spec.Type(), "resync_response") || version(spec) >= version(deletion)
}

// version returns the generation of a work in an event.
func version(e cloudevents.Event) int64 {
	n, _ := strconv.ParseInt(fmt.Sprint(e.Extensions()["resourceversion"]), 10, 64)
	return n
}
