// Package executor checks whether the executor of a work may do what applying a
// manifest needs. An executor is a ServiceAccount of the cluster. The agent writes with
// its own rights, but only what the executor could write itself.
//
//	executors, err := executor.New(executor.Config[Key]{Client: client, Changed: queue.Add, Logger: logger})
//	go executors.Run(ctx)
//	account, err := executor.AccountOf(spec.Executor)   // nil: nothing is checked
//	executors.Follow(key, nil, account)                 // Changed is called when its rights change
//	recheck, err := executors.Check(ctx, *account, &m)  // nil: allowed; *DeniedError: denied
//
// The API server decides, by SubjectAccessReviews and, for RBAC's own kinds, by a dry-run
// create as the executor, which it refuses if the executor would grant rights that it
// does not have. Decisions are cached until an RBAC object that affects the account
// changes, as watches report, or until they expire. With [Config.InMemory], RBAC is
// evaluated from the watched objects, and reviews are requested only while the watches do
// not work.
package executor
