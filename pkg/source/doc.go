// Package source lets any Go program be a source of ManifestWorks: it hands works
// to clusters over a broker and shows their status, without a hub and without a
// Kubernetes API server.
//
// A [Client] gives the same interface to works that the generated clientset gives
// on a Kubernetes API, with the same kinds of errors (k8s.io/apimachinery/pkg/api/errors):
//
//	client, err := source.New(source.Config{SourceID: "ops", Topics: topics, Transport: t, StateFile: "ops.db"})
//	...
//	go client.Run(ctx)
//	works := client.ManifestWorks("cluster1") // the namespace is the cluster's name
//	work, err := works.Create(ctx, &workv1.ManifestWork{...}, metav1.CreateOptions{})
//	...
//	changes, err := works.Watch(ctx, metav1.ListOptions{})
//
// Statuses that agents report show in Get, List and Watch at once. Delete marks a
// work for deletion; it goes when its agent has reported that its objects are
// gone. Until then it is there with a deletionTimestamp, and its name can not be
// used again. To give up on a cluster that will never answer, remove the work's
// finalizers by Update or Patch, as on a Kubernetes API.
//
// # What a source must not forget
//
// An agent asks, whenever it connects, for the works of its cluster, and deletes
// what the source does not have. A SOURCE THAT STARTS WITH AN EMPTY STORE
// THEREFORE HAS ITS WORKS DELETED FROM EVERY CLUSTER THAT ASKS BEFORE THE PROGRAM
// HAS CREATED THEM AGAIN. There are two ways to start with the works that are the
// source's already:
//
//   - [Config].StateFile keeps works, their statuses and their generations in a
//     file. Nothing is published again after a restart but what was not delivered.
//   - [Config].Load, for a program that knows its works from elsewhere, is called
//     before the client connects.
//
// A client with neither is for programs whose works end with them, and for tests;
// it must have created its works before Run.
//
// Without a StateFile, a work that an earlier run of the program has created and
// Load leaves out is removed from its cluster only when that agent connects again.
// To be rid of a work, Delete it.
//
// # Generations
//
// The UID of a work follows from source, namespace and name (docs/protocol.md,
// Work ids), so that a work that is created again has the UID of the old one, and
// agents drop generations lower than the one they hold. So the generation of a new
// work is not 1, but higher than that of any work deleted before, and at least the
// number of seconds since the start of 2025: enough for a program that has lost
// its store to be heard, as long as it changes a work no more than once a second
// on average and is not started twice in one second. When agents say that they
// hold a higher generation nevertheless, the client goes on from there.
// Generations fit 32 bits until the year 2093, which is what agents of Open
// Cluster Management read.
//
// # What differs from an API server
//
// UpdateStatus and patches of the status are refused: the status comes from the
// agent. Apply patches are refused, and managedFields are not kept. List gives
// everything at once, whatever Limit says. Field selectors know metadata.name and
// metadata.namespace. Propagation policies and grace periods of a Delete are
// ignored: the work's own deleteOption says what becomes of its objects.
package source
