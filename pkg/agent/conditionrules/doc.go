// Package rules evaluates the condition rules of a manifest on its live object.
//
//	evaluator, err := conditionrules.New(conditionrules.Config{})
//	...
//	if err := conditionrules.Validate(manifest.ConditionRules); err != nil {
//		// the manifest is refused: a rule sets what the agent sets itself
//	}
//	conditions := evaluator.Evaluate(ctx, manifest.ConditionRules, live)
//
// A rule of type CEL has expressions, which are evaluated in order until one is
// false; a rule of type WellKnownConditions has its test built in. Each gives one
// condition, whose reasons and messages are API: docs/conditions.md lists them.
//
// Expressions come from outside. A mistake in one is a condition that tells of
// it, never an error of the agent. What they may cost is bounded: 1,000,000 an
// expression and 10,000,000 for all rules of one manifest, in the units of cel-go
// and of the Kubernetes libraries. Where those count only after the work is done,
// or do not count it at all, guard.go counts before.
package conditionrules
