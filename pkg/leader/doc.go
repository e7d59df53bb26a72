// Package leader lets one of several replicas work while the others stand by,
// by means of a coordination.k8s.io Lease:
//
//	err := leader.Run(ctx, leader.Config{
//		Options: options, // from flags, see Options.AddFlags
//		REST:    restConfig,
//		Logger:  logger,
//	}, func(ctx context.Context) error { ... work until ctx ends ... })
//
// The Lease is used as client-go's leader election uses it, so that candidates
// of either kind understand each other. What differs is when things happen:
//
//   - A standby watches the Lease. It sends no requests while the leader renews
//     it, and tries at once when it is released or deleted.
//   - On a clean stop the Lease is kept until the work has ended, and released
//     right then: the next replica takes over within the time of two requests.
//   - A leader that can not renew stops its work at the renew deadline, before
//     the lease expires and somebody else may start.
package leader
