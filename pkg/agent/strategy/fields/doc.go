// Package fields compares the fields that a manifest declares with those of a live
// object, and merges the former into the latter. It works on objects decoded from
// JSON, alike for every kind but for the few that [Rules] names, and does no I/O.
//
// Only declared fields count. Objects are compared and merged field by field, lists
// item by item and in length. A field that is null declares nothing. Differences are
// named by JSON pointers.
//
//	rules := fields.RulesFor(desired, live)
//	if len(rules.Differences(desired, live, nil)) > 0 {
//		next := live.DeepCopy()
//		rules.Merge(next, live, desired, fields.Previous{})
//	}
package fields
