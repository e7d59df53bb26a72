package conditionrules

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// TestReadiness: the well-known Progressing and Degraded of the kinds that people deploy.
func TestReadiness(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ object, want string }{
		"deployment new":     {"{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, generation: 1}, spec: {replicas: 3}}", "True False Replicas: 0/3"},
		"deployment updated": {"{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, generation: 2}, spec: {replicas: 1}, status: {observedGeneration: 1}}", "True False Deployment generation is 2, but latest observed generation is 1"},
		"deployment without a node": {`{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, generation: 1}, spec: {replicas: 1, progressDeadlineSeconds: 600},
			status: {observedGeneration: 1, replicas: 1, updatedReplicas: 1, unavailableReplicas: 1, conditions: [{type: Available, status: "False"}, {type: Progressing, status: "True", reason: ReplicaSetUpdated}]}}`,
			"True False Available: 0/1"},
		"deployment past its deadline": {`{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, generation: 1}, spec: {replicas: 1, progressDeadlineSeconds: 600},
			status: {observedGeneration: 1, replicas: 1, conditions: [{type: Progressing, status: "False", reason: ProgressDeadlineExceeded}]}}`,
			"True True Progress deadline exceeded"},
		"deployment ready": {`{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, generation: 1}, spec: {replicas: 1, progressDeadlineSeconds: 600},
			status: {observedGeneration: 1, replicas: 1, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1,
			conditions: [{type: Available, status: "True"}, {type: Progressing, status: "True", reason: NewReplicaSetAvailable}]}}`,
			"False False Deployment is available. Replicas: 1"},
		"statefulset":       {"{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s}, spec: {replicas: 2}, status: {replicas: 1}}", "True False Replicas: 1/2"},
		"daemonset":         {"{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: s, generation: 1}, status: {observedGeneration: 1, desiredNumberScheduled: 2, currentNumberScheduled: 1}}", "True False Current: 1/2"},
		"replicaset":        {"{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: s}, spec: {replicas: 1}, status: {replicas: 0}}", "True False Labelled: 0/1"},
		"job not started":   {"{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {completions: 1}}", "True False Job not started"},
		"job failed":        {`{apiVersion: batch/v1, kind: Job, metadata: {name: j}, status: {conditions: [{type: Failed, status: "True"}]}}`, "True True Job Failed. failed: 0/1"},
		"job done":          {`{apiVersion: batch/v1, kind: Job, metadata: {name: j}, status: {succeeded: 1, conditions: [{type: Complete, status: "True"}]}}`, "False False Job Completed. succeeded: 1/1"},
		"pod unschedulable": {`{apiVersion: v1, kind: Pod, metadata: {name: p, creationTimestamp: "2020-01-01T00:00:00Z"}, status: {phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable}]}}`, "True True Pod could not be scheduled"},
		"pod that crashes":  {`{apiVersion: v1, kind: Pod, metadata: {name: p}, status: {phase: Running, containerStatuses: [{name: app, state: {waiting: {reason: CrashLoopBackOff}}}]}}`, "True True Containers in CrashLoop state: app"},
		"pod ready":         {`{apiVersion: v1, kind: Pod, metadata: {name: p}, status: {phase: Running, conditions: [{type: Ready, status: "True"}]}}`, "False False Pod is Ready"},
		"volume pending":    {"{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c}, status: {phase: Pending}}", "True False PVC is not Bound. phase: Pending"},
		"load balancer":     {"{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {type: LoadBalancer, clusterIP: 10.0.0.1}}", "False False Service is ready"},
		"service":           {"{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {type: ClusterIP}}", "False False Service is ready"},
		"crd":               {"{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: c}}", "True False Install in progress"},
		"usual conditions":  {`{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}, status: {conditions: [{type: Ready, status: "False", message: no power}]}}`, "True False no power"},
		"stalled":           {`{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}, status: {conditions: [{type: Stalled, status: "True", message: broken}]}}`, "True True broken"},
		"no conditions":     {"{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}}", "False False Resource is current"},
		"terminating":       {`{apiVersion: v1, kind: Namespace, metadata: {name: n, deletionTimestamp: "2020-01-01T00:00:00Z"}}`, "True False Resource scheduled for deletion"},
		"foreign fields":    {"{apiVersion: v1, kind: Pod, metadata: {name: p}, status: {phase: Running, containerStatuses: [7]}}", "True False The status of the object has not the fields of its kind"},
		"foreign status":    {"{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}, status: {conditions: 7}}", "True False The status of the object has not the fields of its kind"},
	} {
		live := object(t, c.object)
		got := evaluator(t).Evaluate(t.Context(), WithReadiness(nil, live.GroupVersionKind()), live)
		if len(got) != 2 {
			t.Errorf("%s: %v", name, got)
			continue
		}
		text := strings.Join([]string{string(got[0].Status), string(got[1].Status), got[0].Message}, " ")
		if got[0].Type != workv1.ManifestProgressing || got[1].Type != workv1.ManifestDegraded || text != c.want {
			t.Errorf("%s: %s, want %s", name, text, c.want)
		}
	}
}

// TestWithReadiness: rules of the manifest come first, and kinds without a status get none.
func TestWithReadiness(t *testing.T) {
	t.Parallel()
	mine := workv1.ConditionRule{Type: workv1.CelConditionExpressionsType, Condition: workv1.ManifestProgressing}
	for kind, c := range map[schema.GroupVersionKind]struct {
		rules []workv1.ConditionRule
		want  string
	}{
		{Group: "apps", Version: "v1", Kind: "Deployment"}:                       {want: "Progressing Degraded"},
		{Group: "apps", Version: "v1", Kind: "StatefulSet"}:                      {rules: []workv1.ConditionRule{mine}, want: "Progressing Degraded"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}: {},
		{Version: "v1", Kind: "Secret"}:                                          {},
		{Group: "batch", Version: "v1", Kind: "CronJob"}:                         {},
		{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}:       {},
		{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"}:             {want: "Progressing Degraded"},
		{Group: "apps", Version: "v1", Kind: "ReplicaSet"}: {
			rules: []workv1.ConditionRule{{Type: workv1.CelConditionExpressionsType, Condition: workv1.ManifestComplete}}, want: "Complete Progressing Degraded",
		},
	} {
		if got := strings.Join(ConditionTypes(WithReadiness(c.rules, kind), kind), " "); got != c.want {
			t.Errorf("%s: %q, want %q", kind, got, c.want)
		}
	}
	if rules := WithReadiness([]workv1.ConditionRule{mine}, schema.GroupVersionKind{Kind: "Widget"}); rules[0].Type != mine.Type || len(rules) != 2 {
		t.Errorf("the rule of the manifest is lost: %v", rules)
	}
}
