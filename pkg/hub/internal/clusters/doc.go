// Package clusters keeps the ManagedClusters of a hub: which clusters are registered, accepted and
// present.
//
// A message of a cluster changes only memory ([Clusters.Observe], index.go), through a
// state machine without I/O (presence.go). When the ManagedCluster must show a change, the cluster
// is queued. A worker then compares what is stored with what is known (decide.go) and writes the
// difference (reconcile.go): at most one request for the conditions and one for taints and
// annotations, whatever happened meanwhile, and none for a message of a cluster that was present
// before.
//
// All state is on the API server. A hub that starts takes the presence of a cluster from its
// ManagedCluster, until the cluster sends a message, or sends none within 1.5 keepalives of the
// hub's own connection.
//
// The taint of an absent cluster follows its condition after a grace, and not while most of the
// fleet is absent (brake.go).
//
// Works that an agent holds and the hub does not know are kept in memory (held.go), as the agent
// lists and reports them. The ManagedCluster shows how many there are; those that somebody has
// released (helddecide.go) are stored in an annotation until the agent has deleted them.
//
// docs/clusters.md describes what users see.
package clusters
