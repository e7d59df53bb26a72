// Package preview is what `workctl diff set` does: it asks the clusters of a ManifestWorkReplicaSet what its template would
// change there, and groups equal answers. [Read] reads what is needed from the hub's API, [Plan.Choose] chooses clusters,
// [Plan.Ask] asks them over the broker, and [Groups] and [Plan.Record] say what the answers mean; these are pure.
package preview
