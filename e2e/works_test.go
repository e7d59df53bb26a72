package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// example is the work that docker-compose up applies by itself.
const example = "hello-work-demo"

// workYAML is a work with one ConfigMap of its name, which holds value.
func workYAML(cluster, work, value string) string {
	return fmt.Sprintf(`apiVersion: work.open-cluster-management.io/v1
kind: ManifestWork
metadata: {namespace: %[1]s, name: %[2]s}
spec:
  workload:
    manifests:
    - apiVersion: v1
      kind: ConfigMap
      metadata: {namespace: default, name: %[2]s, labels: {e2e: "true"}}
      data: {value: %[3]q}
`, cluster, work, value)
}

// put makes a work, or changes it.
func (s *stack) put(work, value string) {
	s.Helper()
	s.must(s.tryHub(workYAML("cluster1", work, value), "apply", "-f", "-"))
	s.want[work] = value
}

// remove deletes a work, without waiting.
func (s *stack) remove(work string) {
	s.Helper()
	s.hub("-n", "cluster1", "delete", "manifestwork", work, "--wait=false")
	delete(s.want, work)
}

// change changes one work, makes one and deletes the one that it made the time before.
func (s *stack) change(time int) {
	s.Helper()
	s.put("changed", fmt.Sprint("time ", time))
	s.put(fmt.Sprint("made-", time), "once")
	if former := fmt.Sprint("made-", time-1); s.want[former] != "" {
		s.remove(former)
	}
}

// converged waits until every work is there in its last generation, applied, and nothing else is,
// neither at the hub nor at the cluster.
func (s *stack) converged() time.Duration {
	s.Helper()
	works := slices.Sorted(maps.Keys(s.want))
	return s.eventually(fmt.Sprintf("%d works are applied as they were last, and nothing is left over", len(works)), soon, func() error {
		all, err := decoded[workv1.ManifestWorkList](s.tryHub("", "-n", "cluster1", "get", "manifestworks", "-o", "json"))
		if err != nil {
			return err
		}
		var there []string
		for _, work := range all.Items {
			applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
			if applied == nil || applied.Status != metav1.ConditionTrue || applied.ObservedGeneration != work.Generation {
				return fmt.Errorf("%s, generation %d, is %+v", work.Name, work.Generation, applied)
			}
			if work.Name != example {
				there = append(there, work.Name)
			}
		}
		if !slices.Equal(there, works) {
			return fmt.Errorf("the hub has %v, want %v", there, works)
		}
		objects, err := s.values()
		if err != nil {
			return err
		}
		if !maps.Equal(objects, s.want) {
			return fmt.Errorf("the cluster has %v, want %v", objects, s.want)
		}
		records, err := s.trySpoke("spoke", "get", "appliedmanifestworks", "-o", "name")
		if n := len(lines(records)); err == nil && n != len(works)+1 {
			err = fmt.Errorf("%d AppliedManifestWorks, want %d: %s", n, len(works)+1, records)
		}
		return err
	})
}

// values are those in the ConfigMaps at the cluster, by work.
func (s *stack) values() (map[string]string, error) {
	all, err := decoded[corev1.ConfigMapList](s.trySpoke("spoke", "get", "configmaps", "-l", "e2e", "-o", "json"))
	values := map[string]string{}
	for _, object := range all.Items {
		values[object.Name] = object.Data["value"]
	}
	return values, err
}

// repaired deletes an object at the cluster and waits until the agent has brought it back.
func (s *stack) repaired(work string) {
	s.Helper()
	s.spoke("delete", "configmap", work)
	s.eventually("the agent brings back what somebody deleted", soon, func() error {
		values, err := s.values()
		if err == nil && values[work] != s.want[work] {
			err = fmt.Errorf("%s holds %q, want %q", work, values[work], s.want[work])
		}
		return err
	})
}

// present waits until the hub says that the agent is there, or is not, and returns how long that
// took.
func (s *stack) present(want metav1.ConditionStatus, within time.Duration) time.Duration {
	s.Helper()
	return s.eventually("the hub says of the agent's presence: "+string(want), within, func() error {
		cluster, err := decoded[clusterv1.ManagedCluster](s.tryHub("", "get", "managedcluster", "cluster1", "-o", "json"))
		if err != nil {
			return err
		}
		available := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ManagedClusterConditionAvailable)
		if available == nil || available.Status != want {
			return fmt.Errorf("it says %+v", available)
		}
		return nil
	})
}

func lines(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
}
