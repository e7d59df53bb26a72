package outbox_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/agent/internal/outbox"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// bulky returns a status with feedback values of some size in its second manifest.
func bulky(size int) outbox.Status {
	s := status(2, "up")
	at := func(second int) metav1.Time { return metav1.Date(2031, 3, 4, 5, 6, second, 0, time.UTC) }
	text := strings.Repeat("v", size)
	synced := metav1.Condition{Type: "StatusFeedbackSynced", Status: metav1.ConditionTrue, Reason: "StatusFeedbackSynced", LastTransitionTime: at(9)}
	applied := metav1.Condition{Type: "Applied", Status: metav1.ConditionTrue, Reason: "R", LastTransitionTime: at(8)}
	s.Status.ResourceStatus.Manifests = []workv1.ManifestCondition{
		{ResourceMeta: workv1.ManifestResourceMeta{Name: "small"}, Conditions: []metav1.Condition{applied, synced}},
		{ResourceMeta: workv1.ManifestResourceMeta{Ordinal: 1, Name: "large"}, Conditions: []metav1.Condition{applied, synced},
			StatusFeedbacks: workv1.StatusFeedbackResult{Values: []workv1.FeedbackValue{
				{Name: "log", Value: workv1.FieldValue{Type: workv1.String, String: &text}}}}},
	}
	return s
}

// TestStatusTooLarge: what does not fit is cut down, step by step, and says so.
func TestStatusTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &broker{size: 1400})
		s := bulky(5000)
		whole := hashOf(t, s)
		r.Set(key("a"), s)
		synctest.Wait()
		taken := r.broker.took()
		if len(taken) != 1 {
			t.Fatalf("the broker took %q", summary(taken))
		}
		got := taken[0]
		m := got.Status.ResourceStatus.Manifests
		if len(m) != 2 || len(m[1].StatusFeedbacks.Values) != 0 {
			t.Fatalf("the broker took %+v", got.Status)
		}
		want := []metav1.Condition{s.Status.ResourceStatus.Manifests[1].Conditions[0], {
			Type: "StatusFeedbackSynced", Status: metav1.ConditionFalse, Reason: "StatusTooLarge",
			Message:            "The feedback values are left out: with them the status exceeds the broker's maximum packet size",
			LastTransitionTime: s.Status.ResourceStatus.Manifests[1].Conditions[1].LastTransitionTime}}
		if diff := cmp.Diff(want, m[1].Conditions); diff != "" {
			t.Errorf("conditions of the manifest that was cut differ (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(s.Status.ResourceStatus.Manifests[0], m[0]); diff != "" {
			t.Errorf("the manifest without values differs (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(s.Status.Conditions, got.Status.Conditions); diff != "" {
			t.Errorf("conditions of the work differ (-want +got):\n%s", diff)
		}
		if sent, _ := wire.StatusHash(&got.Status); got.Hash != sent || sent == whole {
			t.Errorf("its hash is %s, of what was sent %s, of the whole %s", got.Hash, sent, whole)
		}
		if last, _ := r.Last(key("a")); len(last.Status.ResourceStatus.Manifests[1].StatusFeedbacks.Values) != 1 {
			t.Error("Last is cut too")
		}
		if !strings.Contains(r.log.String(), "status exceeds the packet size of the broker") || r.Stats().Shrunk != 1 {
			t.Errorf("Stats = %+v, the log says\n%s", r.Stats(), r.log)
		}
		// The source has what could be sent: it is not owed again, and not sent again.
		r.Resync(&wire.StatusResync{Source: "hub", Hashes: []wire.StatusVersion{{UID: "a", Hash: got.Hash}}})
		r.Set(key("a"), bulky(5000))
		r.took(t, "")
		// Once it fits, all of it is sent.
		r.Set(key("a"), bulky(10))
		if taken := r.took(t, "a@2 up"); len(taken[0].Status.ResourceStatus.Manifests[1].StatusFeedbacks.Values) != 1 {
			t.Error("the value is left out although it fits")
		}
	})
}

func TestStatusMuchTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &broker{size: 1000})
		s := bulky(10)
		s.Status.Conditions[0].Message = strings.Repeat("ä", 3000)
		s.Meta.Labels = map[string]string{"team": "lights", workv1.OriginalSourceLabelKey: "hub"}
		s.Meta.Annotations = map[string]string{"note": "x", workv1.DataTypeAnnotationKey: "d"}
		r.Set(key("a"), s)
		synctest.Wait()
		taken := r.broker.took()
		if len(taken) != 1 {
			t.Fatalf("the broker took %q", summary(taken))
		}
		got := taken[0]
		if len(got.Status.ResourceStatus.Manifests) != 0 || len(got.Status.Conditions) != 2 {
			t.Fatalf("the broker took %+v", got.Status)
		}
		applied, said := got.Status.Conditions[0], got.Status.Conditions[1]
		if !strings.HasSuffix(applied.Message, "ä…") || len(applied.Message) > 256 || applied.Status != metav1.ConditionTrue {
			t.Errorf("the condition is %+v", applied)
		}
		if said.Type != "StatusFeedbackSynced" || said.Status != metav1.ConditionFalse || said.Reason != workv1.ReasonStatusTooLarge ||
			!strings.Contains(said.Message, "status of the manifests is left out") || said.ObservedGeneration != 2 ||
			!said.LastTransitionTime.Equal(&applied.LastTransitionTime) {
			t.Errorf("the condition that says so is %+v", said)
		}
		if len(got.Meta.Labels) != 1 || len(got.Meta.Annotations) != 1 || len(got.Meta.Finalizers) != 1 {
			t.Errorf("the metadata is %+v", got.Meta)
		}
	})
}

// TestStatusNeverFits: a status that never fits is kept, retried with each connection, and replaced
// by one that fits.
func TestStatusNeverFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{size: 10}
		r := start(t, b)
		r.Set(key("a"), bulky(10))
		r.took(t, "")
		if stats := r.Stats(); stats.Pending != 1 || stats.Refused != 1 || !strings.Contains(r.log.String(), "level=ERROR") {
			t.Errorf("Stats = %+v, the log says\n%s", stats, r.log)
		}
		b.size = 100000
		r.Set(key("a"), status(3, "small"))
		r.took(t, "a@3 small")
	})
}

// TestGreatMetadata: labels and annotations that MQTT cannot carry in one property are left out;
// the status is not.
func TestGreatMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &broker{})
		s := status(1, "up")
		s.Meta.Annotations = map[string]string{"note": strings.Repeat("x", 60000), workv1.DataTypeAnnotationKey: "d"}
		r.Set(key("a"), s)
		if got := r.took(t, "a@1 up")[0]; len(got.Meta.Annotations) != 1 || got.Meta.Name != "lamp" {
			t.Errorf("the metadata is %d annotations of %q", len(got.Meta.Annotations), got.Meta.Name)
		}
		if last, _ := r.Last(key("a")); len(last.Meta.Annotations) != 2 {
			t.Error("Last is cut too")
		}
	})
}

// TestManyConditions: a status fits also if the rules of a work set thousands of conditions; those of
// the agent itself stay.
func TestManyConditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &broker{size: 24 << 10})
		s := status(2, strings.Repeat("m", 1000))
		for i := range 5000 {
			s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{Type: fmt.Sprint("Rule", i), Status: metav1.ConditionTrue,
				Reason: "ConditionRulesAggregated", Message: strings.Repeat("m", 1000)})
		}
		s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{Type: workv1.WorkDeleting, Status: metav1.ConditionTrue, Reason: "R"})
		r.Set(key("a"), s)
		synctest.Wait()
		taken := r.broker.took()
		if len(taken) != 1 {
			t.Fatalf("the broker took %q", summary(taken))
		}
		got := taken[0].Status.Conditions
		last := got[len(got)-1]
		want := fmt.Sprintf("; so are %d conditions of the work", 5000-(len(got)-len(s.Status.Conditions)+5000-1))
		if !strings.HasSuffix(last.Message, want) || last.Reason != workv1.ReasonStatusTooLarge || meta.FindStatusCondition(got, workv1.WorkDeleting) == nil {
			t.Errorf("%d conditions, the last is %+v, want %q", len(got), last, want)
		}
	})
}
