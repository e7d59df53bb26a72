package conditionrules

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/internal/strategy/plan"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// wellKnown returns the built-in test of a condition for objects of kind, which returns whether the
// condition is True and its message, or nil if there is none.
func wellKnown(kind schema.GroupVersionKind, condition string) func(object map[string]any) (result bool, message string) {
	switch condition {
	case workv1.ManifestProgressing:
		return progressing
	case workv1.ManifestDegraded:
		return degraded
	case workv1.ManifestComplete:
		return complete(kind)
	}
	return nil
}

// complete returns the built-in test of Complete for objects of kind, or nil if there is none.
func complete(kind schema.GroupVersionKind) func(object map[string]any) (result bool, message string) {
	switch kind {
	case schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}:
		return jobComplete
	case schema.GroupVersionKind{Version: "v1", Kind: "Pod"}:
		return podComplete
	}
	return nil
}

func jobComplete(job map[string]any) (bool, string) {
	if state, _ := plan.StateOfJob(&unstructured.Unstructured{Object: job}); state == plan.JobRunning {
		return false, "Job is not finished"
	}
	return true, "Job is finished"
}

func podComplete(pod map[string]any) (bool, string) {
	status, _ := pod["status"].(map[string]any)
	phase, _ := status["phase"].(string)
	if phase == "" {
		return false, "Pod has no phase yet"
	}
	return phase == "Succeeded" || phase == "Failed", "Pod is in phase " + phase
}
