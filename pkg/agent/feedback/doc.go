// Package feedback reads values out of live objects, as the feedback rules of a
// work ask, for the statusFeedback of its manifests.
//
//	reader := feedback.New(feedback.Config{RawJSON: true})
//	values, err := reader.Values(manifest.FeedbackRules, live)
//
// It is pure: no requests, and no state but for parsed paths. The same object
// always gives the same values, in the same order, so that nothing is published
// while nothing has changed. docs/feedback.md is the guide for users.
package feedback
