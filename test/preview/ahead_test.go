package preview

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/test/kit"
)

// TestStagedAhead: agents get a template before its window, hold it, apply it when the window opens although the broker is gone, and the set is
// complete once they can say so.
func TestStagedAhead(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for the next minute, by which windows open")
	}
	s := newShops(t)
	s.apply(configMap("till", "1"))
	s.annotate(workv1alpha1.PreviewAnnotationKey, nil)
	all := []string{"berlin", "bonn", "paris", "rome"}
	s.have("1", all...)

	const toStage = 45 * time.Second
	opens := time.Now().UTC().Add(toStage).Truncate(time.Minute).Add(time.Minute)
	plan := &workwirev1alpha1.RolloutPlan{ObjectMeta: metav1.ObjectMeta{Name: "night"}, Spec: workwirev1alpha1.RolloutPlanSpec{
		StageAhead: metav1.Duration{Duration: time.Hour},
		Windows:    []workwirev1alpha1.RolloutWindow{{Schedule: fmt.Sprintf("%d %d * * *", opens.Minute(), opens.Hour()), Duration: metav1.Duration{Duration: time.Hour}}},
	}}
	_, err := s.client.WorkwireV1alpha1().RolloutPlans(s.sets).Create(s.Context(), plan, metav1.CreateOptions{})
	kit.NoError(t, err)
	s.annotate(workv1alpha1.RolloutPlanAnnotationKey, "night")
	s.waits("Complete") // the hub knows the plan before the template
	s.apply(configMap("till", "2"))
	kit.Eventually(t, "all clusters hold the template", func() error {
		for _, cluster := range all {
			works, err := s.client.WorkV1().ManifestWorks(cluster).List(s.Context(), metav1.ListOptions{})
			if err != nil || len(works.Items) != 1 {
				return fmt.Errorf("%d works of %s: %w", len(works.Items), cluster, err)
			}
			applied := meta.FindStatusCondition(works.Items[0].Status.Conditions, workv1.WorkApplied)
			if applied == nil || applied.Reason != workv1.ReasonStaged || applied.Status != metav1.ConditionUnknown {
				return fmt.Errorf("%s: %+v", cluster, applied)
			}
		}
		return nil
	})
	s.waits("StagedAhead")
	s.have("1", all...)
	s.Broker.Stop()
	kit.Within(t, time.Until(opens)+kit.Patience, "the clusters apply the template by themselves", func() error {
		held, err := s.price("rome")
		if err == nil && held != "2" {
			err = fmt.Errorf("rome has the price %s", held)
		}
		if err == nil && time.Now().Before(opens) {
			t.Errorf("rome applied it %s too early", time.Until(opens))
		}
		return err
	})
	s.have("2", all...)

	s.Broker.Restart(t)
	s.waits("Complete")
	kit.Eventually(t, "no work has a time any more", func() error {
		for _, cluster := range all {
			works, err := s.client.WorkV1().ManifestWorks(cluster).List(s.Context(), metav1.ListOptions{})
			if err != nil || works.Items[0].Annotations[workv1.ApplyAtAnnotationKey] != "" {
				return fmt.Errorf("%s: %v, %w", cluster, works.Items[0].Annotations, err)
			}
		}
		return nil
	})
	s.ends(all...)
}
