package conditionrules

import (
	"cmp"
	"slices"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

// WithReadiness returns rules and the well-known rules for Progressing and Degraded, each unless
// rules set that condition already. Objects of kinds that are ready as soon as they exist, such as
// ConfigMaps, get none.
func WithReadiness(rules []workv1.ConditionRule, object schema.GroupVersionKind) []workv1.ConditionRule {
	if condition.ReadyOnceCreated(object.GroupKind()) {
		return rules
	}
	all := slices.Clip(rules)
	for _, kind := range []string{workv1.ManifestProgressing, workv1.ManifestDegraded} {
		if !slices.ContainsFunc(rules, func(r workv1.ConditionRule) bool { return r.Condition == kind }) {
			all = append(all, workv1.ConditionRule{Type: workv1.WellKnownConditionsType, Condition: kind})
		}
	}
	return all
}

// IsReadiness reports whether the built-in test of readiness decides a condition and its message.
func IsReadiness(rules []workv1.ConditionRule, condition string) bool {
	builtIn := false
	for i := range rules {
		if rules[i].Condition == condition { // the last one decides
			builtIn = rules[i].Type == workv1.WellKnownConditionsType && rules[i].MessageExpression == ""
		}
	}
	return builtIn
}

// progressing is True until the object is ready, by kstatus. An object that has failed is
// progressing too: Progressing and Degraded together are a failure for a rollout.
func progressing(object map[string]any) (bool, string) {
	state, message := readiness(object)
	return state != status.CurrentStatus, message
}

// degraded is True if the object will not become ready by itself, by kstatus.
func degraded(object map[string]any) (bool, string) {
	state, message := readiness(object)
	return state == status.FailedStatus, message
}

// readiness returns what kstatus says about an object. kstatus relies on the schema of built-in
// kinds, which another API server may have served differently: what it cannot read is Unknown.
func readiness(object map[string]any) (state status.Status, message string) {
	const unreadable = "The status of the object has not the fields of its kind"
	defer func() {
		if recover() != nil {
			state, message = status.UnknownStatus, unreadable
		}
	}()
	result, err := status.Compute(&unstructured.Unstructured{Object: object})
	if err != nil { // its text may have values of the object
		return status.UnknownStatus, unreadable
	}
	return result.Status, cmp.Or(result.Message, string(result.Status))
}

// Unready returns why an object is not ready, by kstatus; empty if it is.
func Unready(object map[string]any) string {
	if waits, message := progressing(object); waits {
		return message
	}
	return ""
}
