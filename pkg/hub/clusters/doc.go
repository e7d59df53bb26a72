// Package clusters keeps the ManagedClusters of a hub: who is registered, who is
// accepted, and who is there.
//
//	fleet, err := clusters.New(clusters.Config{Client: client, Namespaces: kube.CoreV1().Namespaces(), AutoRegister: true, ...})
//	...
//	go fleet.Run(ctx)
//	if fleet.WaitForSync(ctx) {
//		... connect; for each message of a cluster: fleet.Heard(cluster, presence) ...
//		... before a work is published: fleet.Accepted(cluster) ...
//	}
//
// What is heard of a cluster changes only memory (roster.go), by a state machine
// without any I/O (presence.go). When something has changed that the ManagedCluster
// must show, its name is queued, and a worker compares what is stored with what is
// known and writes the difference (decide.go, write.go): one request for the
// conditions and one for taints and annotations, whatever has happened meanwhile,
// and none for a message of a cluster that was there before.
//
// Nothing is kept but what is on the API server. A hub that starts takes a cluster
// for what its ManagedCluster says, until it hears otherwise, or does not hear from
// it within 1.5 keepalives of its own connection.
//
// docs/clusters.md tells users what they see of this.
package clusters
