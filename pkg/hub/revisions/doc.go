// Package revisions is the history of the templates of ManifestWorkReplicaSets. The hub stores each
// template as a ManifestWorkReplicaSetRevision; [List] returns them, and [Undo] gives a set an
// earlier one:
//
//	undone, err := revisions.Undo(ctx, clients, "shop", "till", 0)
//
// Undo only writes the template of the set. The hub rolls it out by the strategy of the set, as any
// other change, and gives the revision a new number. [Decide] decides what the hub stores; it is
// pure.
package revisions
