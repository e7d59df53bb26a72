package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/sim/kubeapi"
)

// holds finds works that an agent removes though it is to hold their deletion until people release it: their source has not recorded it, and does not
// know many of its works at once (docs/agent.md). It is safe for concurrent use.
type holds struct {
	violations *violations

	mu       sync.Mutex
	recorded map[string]time.Time       // by cluster/work that is deleted at its source, until when an agent may carry that out
	released map[string]bool            // UIDs of works that people have released at the hub
	applied  map[string]map[string]bool // AppliedManifestWorks by cluster/source
	unknown  map[string][]time.Time     // by cluster/source, when works were removed that their source did not know
}

func newHolds(v *violations) *holds {
	return &holds{violations: v, recorded: map[string]time.Time{}, released: map[string]bool{}, applied: map[string]map[string]bool{}, unknown: map[string][]time.Time{}}
}

// hubWrite follows a write to the hub's API, or that of the second source.
func (h *holds) hubWrite(w kubeapi.Write) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch w.Kind.Kind {
	case "ManifestWork":
		switch {
		case w.After != nil && w.After.GetDeletionTimestamp() != nil:
			h.recorded[w.After.GetNamespace()+"/"+w.After.GetName()] = time.Now().Add(time.Hour) // a run is shorter
		case w.Before != nil && w.Before.GetDeletionTimestamp() != nil:
			h.recorded[w.Before.GetNamespace()+"/"+w.Before.GetName()] = time.Now().Add(patience)
		}
	case "ManagedCluster":
		h.release(w)
	}
}

// release notes which works a hub has deleted, which people must have asked for by their number.
func (h *holds) release(w kubeapi.Write) {
	if w.After == nil {
		return
	}
	before, asked := []string{}, ""
	if w.Before != nil {
		before, asked = deleting(w.Before), w.Before.GetAnnotations()[clusterv1.DeleteHeldWorksAnnotationKey]
	}
	after := deleting(w.After)
	added := slices.DeleteFunc(slices.Clone(after), func(work string) bool { return slices.Contains(before, work) })
	for _, work := range added {
		h.released[work[strings.LastIndex(work, "/")+1:]] = true
	}
	if w.User == "hub" && len(added) > 0 && asked != strconv.Itoa(len(added)) {
		h.violations.add(fmt.Sprintf("the hub has %d held works of %s deleted, and people have asked for %q", len(added), w.After.GetName(), asked))
	}
}

// deleting returns the held works of a cluster that a hub has deleted, as NAME/UID.
func deleting(c *kubeapi.Object) []string {
	return strings.FieldsFunc(c.GetAnnotations()[clusterv1.DeletingHeldWorksAnnotationKey], func(r rune) bool { return r == ',' })
}

// clusterWrite follows a write to the API of a cluster.
func (h *holds) clusterWrite(cluster string, w kubeapi.Write) {
	if w.Kind.Kind != "AppliedManifestWork" {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.After != nil && w.After.GetDeletionTimestamp() == nil {
		source := sourceOf(cluster, w.After)
		if h.applied[source] == nil {
			h.applied[source] = map[string]bool{}
		}
		h.applied[source][w.After.GetName()] = true
		return
	}
	if w.Before == nil || w.Before.GetDeletionTimestamp() != nil {
		return
	}
	source := sourceOf(cluster, w.Before)
	delete(h.applied[source], w.Before.GetName())
	if w.User == "agent" {
		h.removed(cluster, source, w.Before)
	}
}

// removed is told that an agent removes a work.
func (h *holds) removed(cluster, source string, applied *kubeapi.Object) {
	_, name, _ := strings.Cut(applied.GetName(), "-")
	a, now := applied.GetAnnotations(), time.Now()
	if h.released[a[uidAnnotation]] || a[workv1.ReleaseAnnotation] == "true" || now.Before(h.recorded[cluster+"/"+name]) {
		return
	}
	if reason := a[workv1.HeldAnnotation]; reason != "" {
		h.violations.add(fmt.Sprintf("the agent removes work %s/%s, which it holds (%s), and nobody has released it", cluster, name, reason))
	}
	h.unknown[source] = append(slices.DeleteFunc(h.unknown[source], func(at time.Time) bool { return now.Sub(at) > time.Second }), now)
	if n := len(h.unknown[source]); n >= 3 && n*100 > 20*(n+len(h.applied[source])) {
		h.violations.add(fmt.Sprintf("the agent removes work %s/%s and %d others within a second, of %d, which their source does not know, and holds none", cluster, name, n-1, n+len(h.applied[source])))
	}
}

func sourceOf(cluster string, applied *kubeapi.Object) string {
	return cluster + "/" + applied.GetLabels()[workv1.OriginalSourceLabelKey]
}
