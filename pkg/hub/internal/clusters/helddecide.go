package clusters

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

const (
	// heldAbsence is how long an agent that is present may take to list held works after the hub has
	// connected, which asks it: after that it holds none.
	heldAbsence = time.Minute
	// shownNames is the number of works that conditions and events name.
	shownNames = 5
	// maxReleased is the maximum size in bytes of the list of works that one release covers: the API
	// server limits all annotations of an object to 256 KiB.
	maxReleased = 200 << 10
)

// heldStep is the part of step about held works.
type heldStep struct {
	condition *metav1.Condition // to set; nil for no change
	// annotations to change; nil removes one.
	annotations map[string]any
	events      []event // once the annotations are stored
	// released are the works to delete once the annotations are stored.
	released     []heldWork
	requeueAfter time.Duration
}

// decideHeld plans what the ManagedCluster stored says of held works, and which are released.
func decideHeld(stored *clusterv1.ManagedCluster, v heldView, now time.Time) heldStep {
	if !v.any {
		return heldStep{}
	}
	s := heldStep{released: v.released, annotations: map[string]any{}}
	before := meta.FindStatusCondition(stored.Status.Conditions, clusterv1.ManagedClusterConditionWorksHeld)
	shown := before != nil && before.Status == metav1.ConditionTrue
	if v.settled.After(now) {
		s.requeueAfter = v.settled.Sub(now)
		return s
	}
	none := len(v.works)+len(v.released) == 0
	complete := v.listed && v.waiting == 0
	if !v.listed && shown && !v.heard.IsZero() {
		if at := v.heard.Add(heldAbsence); at.After(now) {
			s.requeueAfter = at.Sub(now)
		} else {
			complete = none || v.waiting == 0 // it would have listed all: it has none that the hub did not know when it was asked
		}
	}
	if encoded := encodeReleased(v.released); encoded != stored.Annotations[clusterv1.DeletingHeldWorksAnnotationKey] {
		s.annotations[clusterv1.DeletingHeldWorksAnnotationKey] = orRemove(encoded)
	}
	if complete || !none && (v.listed || !shown) {
		if c := heldCondition(v); c.Status == metav1.ConditionTrue || shown {
			s.condition = &c
		}
	}
	value, asked := stored.Annotations[clusterv1.DeleteHeldWorksAnnotationKey]
	if !asked || !complete || len(v.released) > 0 {
		return s
	}
	s.release(value, v.works, shown && s.condition != nil && before.Message == s.condition.Message)
	return s
}

// release releases works if value is their number and the user has seen it: current is whether the
// stored condition is about exactly these works.
func (s *heldStep) release(value string, works []heldWork, current bool) {
	s.annotations[clusterv1.DeleteHeldWorksAnnotationKey] = nil
	n, err := strconv.Atoi(value)
	decline := func(why string) {
		s.events = append(s.events, event{corev1.EventTypeWarning, clusterv1.EventDeletionDeclined,
			fmt.Sprintf("%s=%s deletes nothing and was removed: %s", clusterv1.DeleteHeldWorksAnnotationKey, condition.Shorten(value, 23), why)})
	}
	switch {
	case err != nil || n < 1:
		decline("its value must be the number of held works")
	case n != len(works):
		decline(fmt.Sprintf("%d works are held; see condition %s", len(works), clusterv1.ManagedClusterConditionWorksHeld))
	case !current:
		decline(fmt.Sprintf("the held works have changed; see condition %s", clusterv1.ManagedClusterConditionWorksHeld))
	default:
		s.released = fitting(works)
		s.annotations[clusterv1.DeletingHeldWorksAnnotationKey] = encodeReleased(s.released)
		message := fmt.Sprintf("deleting %d of %d held works: %s", len(s.released), n, nameList(s.released))
		s.events = append(s.events, event{corev1.EventTypeNormal, clusterv1.EventDeletingHeld, message})
	}
}

// heldCondition returns the condition WorksHeld.
func heldCondition(v heldView) metav1.Condition {
	c := metav1.Condition{Type: clusterv1.ManagedClusterConditionWorksHeld, Status: metav1.ConditionTrue}
	switch n := len(v.works); {
	case n > 0:
		c.Reason = v.works[0].reason
		why := "they are a large share of its works"
		if slices.ContainsFunc(v.works, func(w heldWork) bool { return w.reason == workv1.ReasonSourceIdentityChanged }) {
			c.Reason, why = workv1.ReasonSourceIdentityChanged, "they are of a hub with another identity, or of before the cluster was registered here"
		}
		c.Message = fmt.Sprintf("The agent keeps %d works that this hub does not know, because %s: %s. To keep their objects, bring back the API "+
			"that has the works, or create them again under their names. To delete the works with their objects, annotate this ManagedCluster "+
			"with %s=%d", n, why, nameList(v.works), clusterv1.DeleteHeldWorksAnnotationKey, n)
	case len(v.released) > 0:
		c.Reason = clusterv1.ReasonHeldWorksDeleting
		c.Message = fmt.Sprintf("Works that this hub does not know are being deleted, since somebody has asked for it: %s", nameList(v.released))
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, clusterv1.ReasonNoWorksHeld, "The agent holds no work that this hub does not know"
	}
	return c
}

// nameList returns the first names of works.
func nameList(works []heldWork) string {
	var names []string
	for _, w := range works {
		names = append(names, w.name)
	}
	return condition.First(names, shownNames, len(names), ", ")
}

// fitting returns the first works, as many as one release covers.
func fitting(works []heldWork) []heldWork {
	size := 0
	for i, w := range works {
		if size += len(w.name) + len(w.uid) + 2; size > maxReleased {
			return works[:i]
		}
	}
	return works
}

// encodeReleased returns the value of the annotation that lists released works.
func encodeReleased(works []heldWork) string {
	entries := make([]string, len(works))
	for i, w := range works {
		entries[i] = w.name + "/" + string(w.uid)
	}
	return strings.Join(entries, ",")
}

// parseReleased reads it. Entries that are not of its form are left out.
func parseReleased(text string) (works []heldWork) {
	if text == "" {
		return nil
	}
	for entry := range strings.SplitSeq(text, ",") {
		if name, uid, ok := strings.Cut(entry, "/"); ok && name != "" && uid != "" {
			works = append(works, heldWork{name: name, uid: types.UID(uid)})
		}
	}
	return works
}

func orRemove(value string) any {
	if value == "" {
		return nil
	}
	return value
}
