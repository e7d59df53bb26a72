// Package feedback reads values out of live objects, as the feedback rules of a
// work ask, for the statusFeedback of its manifests.
//
//	reader := feedback.New(feedback.Config{RawJSON: true})
//	values, err := reader.Values(manifest.FeedbackRules, live)
//
// It is pure: no requests, and no state but for parsed paths.
package feedback
