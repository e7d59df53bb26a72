// Package executor answers whether the executor of a work may do what applying
// a manifest needs. An executor is a ServiceAccount of the cluster; the agent
// writes with its own rights, but only what the executor could write itself.
//
//	checks := executor.New(executor.Config[Key]{Client: client, Changed: queue.Add, Logger: logger})
//	go checks.Run(ctx)
//	account, err := executor.AccountOf(spec.Executor)   // nil: nothing is checked
//	checks.Follow(key, nil, account)                    // Changed is called when its rights change
//	recheck, err := checks.Check(ctx, *account, &m)     // nil: allowed; *DeniedError: not
//
// The API server decides, by SubjectAccessReviews and, for RBAC's own kinds, by
// a create with dryRun as the executor, which it refuses when the executor would
// hand out rights that it has not. Answers are kept until an RBAC object that
// concerns the account changes, which watches tell, or until they are old.
// With [Config.InMemory], RBAC is evaluated here, from what the watches hold,
// and reviews are asked for only while those do not work.
package executor
