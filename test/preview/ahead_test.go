package preview

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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

	plan := &workwirev1alpha1.RolloutPlan{ObjectMeta: metav1.ObjectMeta{Name: "night"}, Spec: workwirev1alpha1.RolloutPlanSpec{
		StageAhead: metav1.Duration{Duration: 24 * time.Hour}, Windows: windowAt(time.Now().Add(12 * time.Hour)),
	}}
	plans := s.client.WorkwireV1alpha1().RolloutPlans(s.sets)
	_, err := plans.Create(s.Context(), plan, metav1.CreateOptions{})
	kit.NoError(t, err)
	s.annotate(workv1alpha1.RolloutPlanAnnotationKey, "night")
	s.waits("Complete") // the hub knows the plan before the template
	s.apply(configMap("till", "2"))
	kit.Eventually(t, "all clusters hold the template", func() error { return s.hold("Staged until ", all...) })
	s.waits("StagedAhead")
	s.have("1", all...)

	// What takes long is done before the window is near. It moves on while a cluster does not know of it.
	var opens time.Time
	kit.Eventually(t, "all clusters hold the template until the next minute", func() error {
		if time.Until(opens) < 20*time.Second {
			next := time.Now().UTC().Add(45 * time.Second).Truncate(time.Minute).Add(time.Minute)
			patch, err := json.Marshal(map[string]any{"spec": map[string]any{"windows": windowAt(next)}})
			kit.NoError(t, err)
			if _, err := plans.Patch(s.Context(), "night", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				return err
			}
			opens = next
		}
		return s.hold("Staged until "+opens.Format(time.RFC3339), all...)
	})
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
			work, err := s.work(cluster)
			if err != nil {
				return err
			}
			if at := work.Annotations[workv1.ApplyAtAnnotationKey]; at != "" {
				return fmt.Errorf("%s has %s", cluster, at)
			}
		}
		return nil
	})
	s.ends(all...)
}

// windowAt returns the windows of a plan with one, of an hour, that opens with the minute of that time each day.
func windowAt(opens time.Time) []workwirev1alpha1.RolloutWindow {
	opens = opens.UTC()
	return []workwirev1alpha1.RolloutWindow{{Schedule: fmt.Sprintf("%d %d * * *", opens.Minute(), opens.Hour()), Duration: metav1.Duration{Duration: time.Hour}}}
}

// hold returns an error unless the works of clusters say that they are staged, in these words.
func (s *shops) hold(words string, clusters ...string) error {
	for _, cluster := range clusters {
		work, err := s.work(cluster)
		if err != nil {
			return err
		}
		applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
		if applied == nil || applied.Reason != workv1.ReasonStaged || applied.Status != metav1.ConditionUnknown || !strings.Contains(applied.Message, words) {
			return fmt.Errorf("%s: %+v, want %s", cluster, applied, words)
		}
	}
	return nil
}

// work returns the work of a cluster.
func (s *shops) work(cluster string) (*workv1.ManifestWork, error) {
	works, err := s.client.WorkV1().ManifestWorks(cluster).List(s.Context(), metav1.ListOptions{})
	if err == nil && len(works.Items) != 1 {
		err = fmt.Errorf("%s has %d works", cluster, len(works.Items))
	}
	if err != nil {
		return nil, err
	}
	return &works.Items[0], nil
}
