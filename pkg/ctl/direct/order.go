package direct

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/fleet"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/pkg/workstate"
)

// epoch is when versions begin. Versions are seconds, because agents of Open Cluster Management read
// numbers of 32 bits.
var epoch = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// versionAt returns the version of a spec that is sent at a time. It grows from one run to the next
// without anything that is kept between them.
func versionAt(now time.Time) wire.Generation {
	return wire.Generation(max(1, int64(now.Sub(epoch)/time.Second)))
}

// untilLater returns how long it takes until a run has a later version than each of these orders, 0 if it has already or
// their versions are ahead of the clock. A status says which version it is about, and two specs of one version are one.
func untilLater(orders []*order, now time.Time) time.Duration {
	for _, o := range orders {
		if o.sends > 0 && o.version == versionAt(now) {
			return time.Second - now.Sub(epoch)%time.Second
		}
	}
	return 0
}

// maxSends bounds how often a run sends one work.
const maxSends = 5

// order is a work to apply or delete, and how far that has got. Its methods are pure.
type order struct {
	work    *workv1.ManifestWork
	delete  bool
	goal    fleet.Goal
	version wire.Generation
	sends   int
	result  Result
}

func newOrder(work *workv1.ManifestWork, remove bool, goal fleet.Goal, now time.Time) *order {
	o := &order{work: work, delete: remove, goal: goal, version: versionAt(now)}
	o.result = Result{Cluster: work.Namespace, Name: work.Name, UID: work.UID, Version: int64(o.version)}
	return o
}

// open reports whether the order still waits for the agent.
func (o *order) open() bool { return !o.result.Done && o.result.Failure == "" }

// spec returns the event to send.
func (o *order) spec(source wire.SourceID, now time.Time) *wire.Spec {
	s := &wire.Spec{
		UID: o.work.UID, Generation: o.version, Source: source, Cluster: wire.ClusterName(o.work.Namespace), Action: wire.Update,
		Meta: *o.work.ObjectMeta.DeepCopy(),
	}
	s.Meta.Generation = int64(o.version)
	if o.delete {
		s.Action, s.DeletionTimestamp = wire.Delete, &metav1.Time{Time: now}
		return s
	}
	if _, has := s.Meta.Annotations[workv1.ReportReadinessAnnotationKey]; !has {
		metav1.SetMetaDataAnnotation(&s.Meta, workv1.ReportReadinessAnnotationKey, "true") // as the hub does
	}
	s.Bundle = wire.NewBundle(&o.work.Spec)
	return s
}

// sent notes what the broker has said about the event.
func (o *order) sent(heard bool, err error) {
	o.sends++
	o.result.Version = int64(o.version)
	switch {
	case err != nil:
		o.fail(reasonOf(err))
	case !heard:
		o.fail("the broker says that no agent subscribes to the cluster's topic: nothing is delivered",
			"start the agent of "+o.work.Namespace+"; its topics must include this source, and its --cluster-name must be "+o.work.Namespace)
	default:
		o.result.Message = "sent; the agent has not answered yet"
	}
}

func (o *order) fail(message, hint string) { o.result.Failure, o.result.Hint = message, hint }

// receive handles a status of the work. again is true if the work must be sent once more.
func (o *order) receive(s *wire.Status, now time.Time) (again bool) {
	deleted := meta.IsStatusConditionTrue(s.Status.Conditions, workv1.WorkDeleted)
	deleting := meta.IsStatusConditionTrue(s.Status.Conditions, workv1.WorkDeleting)
	switch {
	case !o.open():
		return false
	case o.delete && deleted:
		o.result.Done, o.result.Message = true, "deleted"
		return false
	case o.delete:
		o.describe(s, now)
		return false
	case s.Generation > o.version:
		// Sent by a clock that is ahead of this one.
		return o.resend(s.Generation + 1)
	case deleted:
		return o.resend(o.version) // an earlier deletion is complete
	case deleting:
		o.result.Message = "an earlier deletion is not complete yet; the work is sent again after it"
		return false
	case s.Generation < o.version:
		return false
	}
	return o.reached(s, now)
}

func (o *order) resend(version wire.Generation) bool {
	if o.sends >= maxSends {
		o.fail(fmt.Sprintf("another program sends this work too: version %d was replaced by a later one", o.version),
			"stop the other program with this source id, or give this one a source id of its own")
		return false
	}
	o.version = version
	return true
}

// describe says in the result how far the deletion has got.
func (o *order) describe(s *wire.Status, now time.Time) {
	o.result.Message = "the agent has not begun to delete it"
	w := o.observed(s)
	w.DeletionTimestamp = &metav1.Time{Time: now}
	if !meta.IsStatusConditionTrue(s.Status.Conditions, workv1.WorkDeleting) {
		return
	}
	o.result.Message = "its objects are being deleted"
	if b := workstate.Of(w, nil).Blocker; b != nil {
		o.blocked(b)
	}
}

func (o *order) blocked(b *workstate.Blocker) {
	o.result.Message = fmt.Sprintf("%s, %s: %s", b.Cause, b.Object, cli.OneLine(b.Message))
	o.result.Hint = b.Do
}

// observed returns the work with a status, as a hub's API would show it.
func (o *order) observed(s *wire.Status) *workv1.ManifestWork {
	w := &workv1.ManifestWork{ObjectMeta: *o.work.ObjectMeta.DeepCopy(), Status: s.Status}
	w.Generation = int64(s.Generation)
	return w
}

// refusals are causes that waiting does not end.
var refusals = map[workstate.Cause]bool{workstate.InvalidSpec: true, workstate.Untrusted: true, workstate.Unsealed: true}

// reached looks at a status of the version that was sent.
func (o *order) reached(s *wire.Status, now time.Time) bool {
	w := o.observed(s)
	done, line, err := o.goal.Reached(w, now)
	o.result.Message, o.result.Hint = line, ""
	if err != nil {
		o.fail("the work does not report readiness", "annotate it with "+workv1.ReportReadinessAnnotationKey+"=true, or use --for=available")
		return false
	}
	if b := workstate.Of(w, nil).Blocker; b != nil {
		o.blocked(b)
		if refusals[b.Cause] {
			o.fail(o.result.Message, b.Do)
			return false
		}
	}
	o.result.Done = done
	if done {
		o.result.Hint = ""
	}
	return false
}
