package clusters

import (
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// aboutInterval is the least time between two writes of what a cluster says of itself. Agents change it more rarely,
// but who sends it may be no agent of ours.
const aboutInterval = time.Minute

// showsAbout reports whether a ManagedCluster shows what the cluster says of itself.
func showsAbout(cluster *clusterv1.ManagedCluster, about *wire.About) bool {
	return apiequality.Semantic.DeepEqual(cluster.Status, withAbout(cluster.Status, about))
}

// withAbout returns a status with what the cluster says of itself. What the cluster does not know stays as it was.
func withAbout(status clusterv1.ManagedClusterStatus, about *wire.About) clusterv1.ManagedClusterStatus {
	if about == nil {
		return status
	}
	if about.Kubernetes != "" {
		status.Version.Kubernetes = about.Kubernetes
	}
	if about.Capacity != nil {
		status.Capacity = quantities(about.Capacity)
	}
	if about.Allocatable != nil {
		status.Allocatable = quantities(about.Allocatable)
	}
	if about.Claims != nil {
		status.ClusterClaims = make([]clusterv1.ManagedClusterClaim, 0, len(about.Claims))
		for _, c := range about.Claims {
			status.ClusterClaims = append(status.ClusterClaims, clusterv1.ManagedClusterClaim{Name: c.Name, Value: c.Value})
		}
	}
	return status
}

// quantities returns resources as the API has them. Decoding the message has checked them.
func quantities(resources map[string]string) clusterv1.ResourceList {
	list := make(clusterv1.ResourceList, len(resources))
	for name, text := range resources {
		if quantity, err := resource.ParseQuantity(text); err == nil {
			list[clusterv1.ResourceName(name)] = quantity
		}
	}
	return list
}

// aboutPatch returns the fields of a merge patch that stores what the cluster says of itself: those that change.
func aboutPatch(before clusterv1.ManagedClusterStatus, about *wire.About) map[string]any {
	after, fields := withAbout(before, about), map[string]any{}
	if after.Version != before.Version {
		fields["version"] = after.Version
	}
	resources := func(name string, before, after clusterv1.ResourceList) {
		if apiequality.Semantic.DeepEqual(before, after) {
			return
		}
		changed := map[string]any{}
		for resource := range before {
			if _, ok := after[resource]; !ok {
				changed[string(resource)] = nil // a merge patch keeps what it does not name
			}
		}
		for resource, quantity := range after {
			changed[string(resource)] = quantity
		}
		fields[name] = changed
	}
	resources("capacity", before.Capacity, after.Capacity)
	resources("allocatable", before.Allocatable, after.Allocatable)
	if !apiequality.Semantic.DeepEqual(before.ClusterClaims, after.ClusterClaims) {
		fields["clusterClaims"] = after.ClusterClaims
	}
	return fields
}
