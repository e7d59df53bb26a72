package integration

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/world"
)

// TestDeliveryOfAWork: while its agent is off, a work says why nothing happens; then when it went
// where, with the agent's times.
func TestDeliveryOfAWork(t *testing.T) {
	onBothBrokers(t, func(w *world.World) {
		w.StartHub(func(c *hub.Config) { c.PendingDelay = 10 * time.Millisecond })
		works := w.Works(0)
		w.Create(works, w.Work(0, "web", "1", "a"))
		delivered := func(what string, want func(c *metav1.Condition) bool) *workv1.ManifestWork {
			t.Helper()
			var work *workv1.ManifestWork
			kit.Eventually(w, what, func() (err error) {
				if work, err = works.Get(w.Context(), "web", metav1.GetOptions{}); err != nil {
					return err
				}
				if c := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkDelivered); c == nil || !want(c) {
					return fmt.Errorf("Delivered is %+v", c)
				}
				return nil
			})
			return work
		}
		// The broker says that nobody listens, and there is no ManagedCluster.
		delivered("the work says that it is pending", func(c *metav1.Condition) bool { return c.Reason == workv1.ReasonClusterNotFound })
		w.StartAgent(0)
		work := delivered("the agent answers", func(c *metav1.Condition) bool { return c.Reason == workv1.ReasonAnswered })
		w.Applied(works, "web")
		kit.Eventually(w, "the times of the agent are stored", func() (err error) {
			if work, err = works.Get(w.Context(), "web", metav1.GetOptions{}); err != nil {
				return err
			}
			d := work.Status.Delivery
			if d == nil || d.PublishedTime == nil || d.ReceivedTime == nil || d.AppliedTime == nil || d.ReadyTime == nil {
				return fmt.Errorf("delivery is %+v", d)
			}
			if d.AppliedTime.Before(d.ReceivedTime) {
				return errors.New("applied before received")
			}
			return nil
		})
	})
}
