// Package conditionrules evaluates the condition rules of a manifest on its live object.
//
//	evaluator, err := conditionrules.New(conditionrules.Config{})
//	...
//	if err := conditionrules.Validate(manifest.ConditionRules); err != nil {
//		// the manifest is refused, for instance because a rule sets a built-in condition
//	}
//	conditions := evaluator.Evaluate(ctx, manifest.ConditionRules, live)
//
// A rule of type CEL has expressions, which are evaluated in order until one is false. A rule of type
// WellKnownConditions has a built-in test. Each rule results in one condition, whose reasons and
// messages are API: docs/conditions.md lists them.
//
// Expressions are untrusted. A faulty one results in a condition that describes the fault, never in an
// error of the agent. Their cost is limited to 1,000,000 for an expression and 10,000,000 for all rules
// of a manifest, in the units of cel-go and of the Kubernetes libraries. Where these libraries count
// only after the work is done, or not at all, guard.go counts before.
package conditionrules
