// Package leader runs work in one of several replicas while the others stand by. Replicas exclude
// each other by a coordination.k8s.io Lease:
//
//	err := leader.Run(ctx, leader.Config{
//		Options: options, // from flags, see Options.AddFlags
//		REST:    restConfig,
//		Logger:  logger,
//	}, func(ctx context.Context) error { ... work until ctx ends ... })
//
// The Lease has the format of client-go's leader election, so that candidates of both kinds exclude
// each other. This package differs in what it guarantees:
//
//   - A standby watches the Lease. It sends no requests while the leader renews it, and takes over at once
//     when it is released or deleted. client-go's candidates poll.
//   - A leader whose Lease cannot be renewed stops its work at the renew deadline, counted from when it
//     sent the last successful renewal. client-go counts from the answer, which may be late.
//   - A leader whose Lease was deleted has lost it, since another candidate may have held it meanwhile.
//     client-go creates it again and goes on.
//   - On a clean stop the Lease is released when the work has ended, not when the context ends.
//   - A Lease whose own times say that it expired is taken after a short observation. client-go waits for
//     its whole duration.
package leader
