package works

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
)

func cluster(available metav1.ConditionStatus) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{}
	c.Status.Conditions = []metav1.Condition{{Type: clusterv1.ManagedClusterConditionAvailable, Status: available}}
	return c
}

func TestDelivered(t *testing.T) {
	here, away := cluster(metav1.ConditionTrue), cluster(metav1.ConditionUnknown)
	sent := &delivery.Publication{Ended: time.Now()}
	failed := func(refused, text string) *delivery.Publication {
		return &delivery.Publication{Refused: refused, Err: errors.New(text)}
	}
	nobody := &delivery.Publication{Ended: time.Now(), NobodyListens: true}
	for _, c := range []struct {
		name         string
		facts        facts
		status       metav1.ConditionStatus
		reason, says string
	}{
		{"sent", facts{connected: true, accepted: true, cluster: here, registry: true, published: sent}, metav1.ConditionUnknown, workv1.ReasonPublished, "spec"},
		{"deletion sent", facts{deleting: true, connected: true, accepted: true, published: sent}, metav1.ConditionUnknown, workv1.ReasonPublished, "deletion"},
		{"paused", facts{pausedBy: "ManagedCluster", cluster: away, registry: true}, metav1.ConditionFalse, workv1.ReasonPaused, "ManagedCluster"},
		{"paused and deleted", facts{pausedBy: "ManifestWork", deleting: true, connected: true, accepted: true, published: sent}, metav1.ConditionUnknown, workv1.ReasonPublished, ""},
		{"no such cluster", facts{registry: true, connected: true}, metav1.ConditionFalse, workv1.ReasonClusterNotFound, "no ManagedCluster c"},
		{"no such cluster, all accepted", facts{registry: true, accepted: true, connected: true, published: nobody}, metav1.ConditionFalse, workv1.ReasonClusterNotFound, "c"},
		{"a cluster without a ManagedCluster", facts{registry: true, accepted: true, connected: true, published: sent}, metav1.ConditionUnknown, workv1.ReasonPublished, ""},
		{"no name of a cluster", facts{connected: true, accepted: true, published: failed(workv1.ReasonInvalidClusterName, "x")}, metav1.ConditionFalse, workv1.ReasonClusterNotFound, "c"},
		{"not accepted", facts{registry: true, cluster: here, connected: true}, metav1.ConditionFalse, workv1.ReasonClusterNotAccepted, "hubAcceptsClient"},
		{"too large, and no broker", facts{accepted: true, published: failed(workv1.ReasonTooLarge, "9 bytes")}, metav1.ConditionFalse, workv1.ReasonTooLarge, "9 bytes"},
		{"deleted, and its last spec is too large", facts{deleting: true, accepted: true, connected: true, published: failed(workv1.ReasonTooLarge, "9 bytes")},
			metav1.ConditionFalse, workv1.ReasonTooLarge, "The last spec, which must go before the deletion, is not sent: 9 bytes"},
		{"no key", facts{accepted: true, connected: true, published: failed(workv1.ReasonNoSealKey, "cluster c has no key")}, metav1.ConditionFalse, workv1.ReasonNoSealKey, "--seal-keys"},
		{"no broker", facts{accepted: true, registry: true, cluster: away}, metav1.ConditionFalse, workv1.ReasonBrokerUnreachable, "work-hub"},
		{"refused", facts{accepted: true, connected: true, published: failed(workv1.ReasonNotAuthorized, "x")}, metav1.ConditionFalse, workv1.ReasonAccessRefused, "access rules"},
		{"away", facts{accepted: true, connected: true, registry: true, cluster: away, published: sent}, metav1.ConditionFalse, workv1.ReasonClusterAway, "its ManagedCluster says since when$"},
		{"away, no subscription", facts{accepted: true, connected: true, registry: true, cluster: away, published: nobody}, metav1.ConditionFalse, workv1.ReasonClusterAway, "refuses its subscription"},
		{"nobody listens", facts{accepted: true, connected: true, registry: true, cluster: here, published: nobody}, metav1.ConditionFalse, workv1.ReasonNobodyListens, "topics"},
		{"not sent yet", facts{accepted: true, connected: true}, metav1.ConditionFalse, workv1.ReasonHeldBack, "not sent"},
		{"tried again", facts{accepted: true, connected: true, published: failed("", "quota exceeded")}, metav1.ConditionFalse, workv1.ReasonHeldBack, "quota exceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.facts.name = "c"
			status, reason, message := delivered(c.facts)
			if status != c.status || reason != c.reason || !strings.Contains(message+"$", c.says) {
				t.Errorf("%s %s %q, want %s %s with %q", status, reason, message, c.status, c.reason, c.says)
			}
		})
	}
}

func at(second int) *metav1.MicroTime {
	return ptr.To(metav1.NewMicroTime(time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC)))
}

func TestAnswered(t *testing.T) {
	now := metav1.NewTime(time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC))
	applied := func(generation int64) metav1.Condition {
		return metav1.Condition{Type: workv1.WorkApplied, Status: metav1.ConditionTrue, Reason: "R", ObservedGeneration: generation}
	}
	done := metav1.Condition{Type: workv1.WorkProgressing, Status: metav1.ConditionFalse}
	delivered := func(status metav1.ConditionStatus, generation int64) metav1.Condition {
		return metav1.Condition{Type: workv1.WorkDelivered, Status: status, Reason: "R", ObservedGeneration: generation}
	}
	status := func(generation wire.Generation, conditions ...metav1.Condition) *wire.Status {
		return &wire.Status{
			Generation: generation, Status: workv1.ManifestWorkStatus{Conditions: conditions},
			Times: wire.Times{Received: *at(3), Applied: *at(4), Ready: *at(5)},
		}
	}
	known := &workv1.DeliveryStatus{Generation: 2, AcceptedTime: at(0), PublishedTime: at(1), AcknowledgedTime: at(2)}
	whole := &workv1.DeliveryStatus{Generation: 2, AcceptedTime: at(0), PublishedTime: at(1), AcknowledgedTime: at(2),
		ReceivedTime: at(3), AppliedTime: at(4), ReadyTime: at(5)}
	without := func(change func(d *workv1.DeliveryStatus)) *workv1.DeliveryStatus {
		d := whole.DeepCopy()
		change(d)
		return d
	}
	for _, c := range []struct {
		name     string
		stored   workv1.ManifestWorkStatus
		deleting bool
		status   *wire.Status
		known    *workv1.DeliveryStatus
		want     metav1.ConditionStatus // of Delivered, empty: none
		observed int64
		delivery *workv1.DeliveryStatus
	}{
		{name: "first", status: status(2, applied(2), done), known: known, want: metav1.ConditionTrue, observed: 2, delivery: whole},
		{name: "not ready", status: status(2, applied(2)), known: known, want: metav1.ConditionTrue, observed: 2,
			delivery: without(func(d *workv1.DeliveryStatus) { d.ReadyTime = nil })},
		{name: "of an older generation", status: status(1, applied(1)), known: known},
		{name: "of an older generation while away", stored: workv1.ManifestWorkStatus{Conditions: []metav1.Condition{delivered(metav1.ConditionFalse, 2)}},
			status: status(1, applied(1)), known: known, want: metav1.ConditionFalse, observed: 2},
		{name: "the agent's own Delivered", status: status(1, applied(1), delivered(metav1.ConditionTrue, 2)), known: known},
		{name: "again, after a restart of hub and agent", stored: workv1.ManifestWorkStatus{Delivery: whole},
			status: &wire.Status{Generation: 2, Status: workv1.ManifestWorkStatus{Conditions: []metav1.Condition{applied(2), done}}},
			want:   metav1.ConditionTrue, observed: 2, delivery: whole},
		{name: "of a spec that is being deleted", deleting: true, status: status(2, applied(2)), known: known},
		{name: "deleting", deleting: true, known: known, want: metav1.ConditionTrue, observed: 2,
			status:   status(1, metav1.Condition{Type: workv1.WorkDeleting, Status: metav1.ConditionTrue}),
			delivery: known},
	} {
		t.Run(c.name, func(t *testing.T) {
			work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Status: c.stored}
			if c.deleting {
				work.DeletionTimestamp = &now
			}
			got := answered(work, c.status, c.known, now)
			condition := meta.FindStatusCondition(got.Conditions, workv1.WorkDelivered)
			switch {
			case condition == nil && c.want == "":
			case condition == nil || condition.Status != c.want || condition.ObservedGeneration != c.observed:
				t.Errorf("Delivered is %+v, want %s of generation %d", condition, c.want, c.observed)
			}
			if !equalTimes(got.Delivery, c.delivery) {
				t.Errorf("delivery %+v, want %+v", got.Delivery, c.delivery)
			}
			if again := answered(&workv1.ManifestWork{ObjectMeta: work.ObjectMeta, Status: got}, c.status, c.known, metav1.Now()); !equal(&again, &got) {
				t.Errorf("the same status once more changes %+v to %+v", got, again)
			}
		})
	}
}

// TestAnswerIsAcknowledgement: an agent that answers before the broker's acknowledgement is here leaves no hop without a time, and what
// comes later is no other status.
func TestAnswerIsAcknowledgement(t *testing.T) {
	now := metav1.Now()
	deleting := metav1.Condition{Type: workv1.WorkDeleting, Status: metav1.ConditionTrue}
	applied := metav1.Condition{Type: workv1.WorkApplied, Status: metav1.ConditionFalse, Reason: "R", ObservedGeneration: 2}
	old := applied
	old.ObservedGeneration = 1
	for _, c := range []struct {
		name     string
		deletion *metav1.Time // of the work
		status   wire.Status
		times    workv1.DeliveryStatus
		want     bool
	}{
		{"an answer", nil, wire.Status{Generation: 2, Status: workv1.ManifestWorkStatus{Conditions: []metav1.Condition{applied}}},
			workv1.DeliveryStatus{Generation: 2, PublishedTime: at(1)}, true},
		{"of a deletion", &now, wire.Status{Generation: 1, Meta: metav1.ObjectMeta{DeletionTimestamp: &now},
			Status: workv1.ManifestWorkStatus{Conditions: []metav1.Condition{deleting}}}, workv1.DeliveryStatus{Generation: 2, PublishedTime: at(1)}, true},
		{"of the spec that is being deleted", &now, wire.Status{Generation: 2, Status: workv1.ManifestWorkStatus{Conditions: []metav1.Condition{applied}}},
			workv1.DeliveryStatus{Generation: 2, PublishedTime: at(1)}, false},
		{"of the generation before", nil, wire.Status{Generation: 1, Status: workv1.ManifestWorkStatus{Conditions: []metav1.Condition{old}}},
			workv1.DeliveryStatus{Generation: 2, PublishedTime: at(1)}, false},
		{"of an agent that is ahead", nil, wire.Status{Generation: 3, Status: workv1.ManifestWorkStatus{Conditions: []metav1.Condition{applied}}},
			workv1.DeliveryStatus{Generation: 2, PublishedTime: at(1)}, false},
		{"published by another hub", nil, wire.Status{Generation: 2, Status: workv1.ManifestWorkStatus{Conditions: []metav1.Condition{applied}}},
			workv1.DeliveryStatus{Generation: 2}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := &pendingWork{times: c.times}
			controller := &Controller{entries: map[types.UID]*pendingWork{"u": e}}
			work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{UID: "u", Generation: 2, DeletionTimestamp: c.deletion}}
			work.Status.Delivery = &workv1.DeliveryStatus{Generation: 1}
			status, _ := controller.answer(work, &c.status)
			if got := status.Delivery.AcknowledgedTime != nil; got != c.want {
				t.Fatalf("acknowledged: %t, want %t: %+v", got, c.want, status.Delivery)
			}
			if !c.want {
				return
			}
			work.Status = *status
			e.acknowledged(now.Add(time.Hour))
			if again, changed := controller.answer(work, &c.status); changed {
				t.Errorf("the broker's acknowledgement changes %+v to %+v", status.Delivery, again.Delivery)
			}
		})
	}
}

func TestNewlyMade(t *testing.T) {
	accepted := &workv1.DeliveryStatus{Generation: 2, AcceptedTime: at(10)}
	after := &workv1.DeliveryStatus{Generation: 2, AcceptedTime: at(10), PublishedTime: at(11), ReceivedTime: at(7), ReadyTime: at(20)}
	for _, c := range []struct {
		name          string
		before, after *workv1.DeliveryStatus
		want          map[string]float64
	}{
		{"nobody saw it accepted", nil, &workv1.DeliveryStatus{PublishedTime: at(1)}, nil},
		{"all", accepted, after, map[string]float64{"published": 1, "received": 0, "ready": 10}},
		{"another generation", &workv1.DeliveryStatus{Generation: 1, ReadyTime: at(1)}, after, map[string]float64{"published": 1, "received": 0, "ready": 10}},
		{"nothing new", after, after, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := newlyMade(c.before, c.after)
			if len(got) != len(c.want) {
				t.Errorf("hops %v, want %v", got, c.want)
			}
			for hop, seconds := range c.want {
				if got[hop] != seconds {
					t.Errorf("%s %v s, want %v", hop, got[hop], seconds)
				}
			}
		})
	}
}
