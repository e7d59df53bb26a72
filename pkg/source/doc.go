// Package source makes any Go program a source of ManifestWorks: the program delivers works to
// clusters over a broker and reads their status, without a hub and without a Kubernetes API server.
//
// A [Client] implements the same interface as the generated clientset of a Kubernetes API, with the
// same kinds of errors (k8s.io/apimachinery/pkg/api/errors):
//
//	client, err := source.New(source.Config{SourceID: "ops", Topics: topics, Transport: t, StateFile: "ops.db"})
//	...
//	go client.Run(ctx)
//	works := client.ManifestWorks("cluster1") // the namespace is the cluster's name
//	work, err := works.Create(ctx, &workv1.ManifestWork{...}, metav1.CreateOptions{})
//	...
//	changes, err := works.Watch(ctx, metav1.ListOptions{})
//
// Get, List and Watch show statuses as soon as agents report them. Delete marks a work for
// deletion. The work is removed once its agent has reported that its objects are deleted; until
// then it has a deletionTimestamp and its name cannot be used again. To remove a work of a cluster
// that will never answer, remove the work's finalizers with Update or Patch, as on a Kubernetes
// API.
//
// [Client.Apply] creates or updates a work by its name, and [Client.WaitFor] waits until its agent has
// applied it, its objects are ready, or it is deleted. [Client.Clusters] tells whose agents are connected: a work of a cluster that nobody
// has heard of is kept and published all the same, and WaitFor says so when its time is over.
//
// # Persistence
//
// On each connect, an agent requests the works of its cluster and deletes those that the source
// does not have. There are two ways to start with the existing works:
//
//   - [Config].Store stores works, their statuses and their generations: in a file, for which
//     [Config].StateFile is short, or in PostgreSQL (packages below store). After a restart, only
//     works that were not delivered are published.
//   - [Config].Load, for a program that stores its works elsewhere, is called before the client connects.
//
// A client with neither is for programs whose works end with them, and for tests. It must create
// its works before Run.
//
// A source whose store is made new and empty (another file or database, a Load that returns nothing, or
// neither) has lost its memory if agents hold works of the one before. It deletes none of them
// and logs an error. It tells them by their generations, see below. Set
// [Config].Ephemeral to have such works deleted. Agents of this project also notice that the
// identity in the state file has changed (docs/protocol.md, Source identity).
//
// Without a Store, a work of an earlier run that Load does not return is deleted from its
// cluster only when the agent connects again. To delete a work, call Delete.
//
// # Generations
//
// The UID of a work is derived from source, namespace and name (docs/protocol.md, Work ids), so a
// work that is created again has the UID of the former one, and agents drop generations lower than
// the one they hold. The generation of a new work is therefore not 1: it is higher than that of any
// deleted work, and at least the number of seconds since the start of 2025. That is high enough for
// a program that has lost its store, if it changes a work at most once a second on average and does
// not start twice within one second. If an agent reports a higher generation nevertheless, the
// client continues above it. Generations fit into 32 bits, which agents of Open Cluster Management
// require, until the year 2093.
//
// # Differences from an API server
//
// UpdateStatus and patches of the status fail: only the agent changes the status. Apply patches
// fail, and managedFields are not stored; [Client.Apply] does for one owner what they are for. Field
// selectors support metadata.name and metadata.namespace. Delete ignores propagation policies and grace
// periods: the deleteOption of the work decides about its objects.
package source
