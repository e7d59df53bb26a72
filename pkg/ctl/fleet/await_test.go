package fleet_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	typed "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1alpha1"
	"github.com/workwire/workwire/pkg/ctl/fleet"
	"github.com/workwire/workwire/test/kit"
)

// oneSet is a client of a hub that has one set.
type oneSet struct {
	versioned.Interface
	typed.WorkV1alpha1Interface
	typed.ManifestWorkReplicaSetInterface
	set     *workv1alpha1.ManifestWorkReplicaSet
	changes *watch.FakeWatcher
}

func (s *oneSet) WorkV1alpha1() typed.WorkV1alpha1Interface { return s }

func (s *oneSet) ManifestWorkReplicaSets(string) typed.ManifestWorkReplicaSetInterface { return s }

func (s *oneSet) Get(context.Context, string, metav1.GetOptions) (*workv1alpha1.ManifestWorkReplicaSet, error) {
	return s.set, nil
}

func (s *oneSet) List(context.Context, metav1.ListOptions) (*workv1alpha1.ManifestWorkReplicaSetList, error) {
	return &workv1alpha1.ManifestWorkReplicaSetList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []workv1alpha1.ManifestWorkReplicaSet{*s.set}}, nil
}

func (s *oneSet) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if o.SendInitialEvents != nil && *o.SendInitialEvents {
		go func() {
			s.changes.Add(s.set)
			mark := &workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
			s.changes.Action(watch.Bookmark, mark)
		}()
	}
	return s.changes, nil
}

// TestStalledForAMoment: a rollout that was stalled a moment ago, since its RolloutPlan came after the set or somebody has just mended an
// override, is followed until it is done; one that stays so is not.
func TestStalledForAMoment(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: reason}
	}
	set := func(version string, conditions ...metav1.Condition) *workv1alpha1.ManifestWorkReplicaSet {
		s := &workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "till", Generation: 1, ResourceVersion: version}}
		s.Status.Conditions = conditions
		return s
	}
	noPlan := set("1", condition("PlacementRolledOut", "False", ""), condition("Progressing", "False", "InvalidPlan"), condition("Stalled", "True", "InvalidPlan"))
	done := set("2", condition("PlacementRolledOut", "True", ""), condition("Progressing", "False", "Complete"))
	for name, changed := range map[string]*workv1alpha1.ManifestWorkReplicaSet{"mended": done, "not mended": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub := &oneSet{set: noPlan, changes: watch.NewFakeWithChanSize(10, false)}
				if changed != nil {
					time.AfterFunc(time.Second, func() { hub.changes.Modify(changed) })
				}
				var last fleet.Rollout
				began := time.Now()
				kit.NoError(t, (&fleet.Reader{Clients: hub}).AwaitRollout(t.Context(), "shop", "till", func(r fleet.Rollout) bool {
					last = r
					return r.Ended()
				}))
				if took := time.Since(began); last.Done != (changed != nil) || last.Stalled == last.Done || took < time.Second || took > time.Minute {
					t.Errorf("%+v after %s", last, took)
				}
			})
		})
	}
}
