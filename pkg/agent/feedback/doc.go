// Package feedback reads values from live objects according to the feedback rules of a work, for the
// statusFeedback of its manifests.
//
//	reader := feedback.New(feedback.Config{RawJSON: true})
//	values, err := reader.Values(manifest.FeedbackRules, live)
//
// It sends no requests and has no state except for parsed paths. The same object always results in
// the same values in the same order, so that an unchanged object causes no publish. docs/feedback.md
// is the guide for users.
package feedback
