// Package dryrun tells a source what a spec would change on the cluster, and stores nothing
// (docs/protocol.md, Dry runs).
//
//	runner, err := dryrun.New(dryrun.Config{...})
//	go runner.Run(ctx)
//	runner.Ask(question, nil) // the answer is published
//
// Objects are read, and each manifest is applied by the strategy engine, with all writes as dry runs
// of the API server: admission, validation and rights are the real ones. examine.go makes the
// requests, decide.go says what their outcome means, compare.go which fields differ.
package dryrun
