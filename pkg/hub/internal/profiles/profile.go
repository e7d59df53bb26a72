package profiles

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
)

// Labels of a ClusterProfile.
const (
	// ManagerLabelKey has the name of the cluster manager, by which consumers select.
	ManagerLabelKey = "x-k8s.io/cluster-manager"
	// SetLabelKey has the ManagedClusterSet that the cluster is in by its label.
	SetLabelKey = "multicluster.x-k8s.io/clusterset"
	// MemberLabelKey has the id of the cluster, the same in the profiles of all cluster managers that know it.
	MemberLabelKey = "multicluster.x-k8s.io/inventory-member-id"
)

// Conditions of a ClusterProfile.
const (
	ConditionHealthy = "ControlPlaneHealthy"
	ConditionJoined  = "Joined"
)

// Limits of the API.
const (
	maxName  = 253
	maxValue = 1024
)

// standard are the names that consumers know some claims by.
var standard = map[string]string{
	clusterv1.ClaimID:     "cluster.clusterset.k8s.io",
	clusterv1.ClaimRegion: "topology.kubernetes.io/region",
	clusterv1.ClaimZone:   "topology.kubernetes.io/zone",
}

// profile is what the hub writes of a ClusterProfile.
type profile struct {
	labels      map[string]string // of ours; those that are not to be there are empty
	displayName string
	status      status
}

// status is the part of the status that the hub writes. Others may add conditions, and how to reach the cluster.
type status struct {
	Conditions []metav1.Condition `json:"conditions"`
	Version    version            `json:"version"`
	Properties []property         `json:"properties"`
}

type version struct {
	// Kubernetes is written as null if it is not known: a merge patch would keep it otherwise.
	Kubernetes *string `json:"kubernetes"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// LastObservedTime is when the value was first seen: later reports of the same value are not worth a write.
	LastObservedTime metav1.Time `json:"lastObservedTime"`
}

// profileOf returns the ClusterProfile of a cluster, whose status is before now.
func profileOf(cluster *clusterv1.ManagedCluster, manager string, before status, now time.Time) profile {
	p := profile{
		displayName: cluster.Name,
		labels:      map[string]string{ManagerLabelKey: manager, SetLabelKey: cluster.Labels[clusterv1.ClusterSetLabelKey], MemberLabelKey: ""},
		status:      status{Conditions: slices.Clone(before.Conditions), Properties: propertiesOf(cluster.Status.ClusterClaims, before.Properties, now)},
	}
	for _, claim := range cluster.Status.ClusterClaims {
		if claim.Name == clusterv1.ClaimID && len(validation.IsValidLabelValue(claim.Value)) == 0 {
			p.labels[MemberLabelKey] = claim.Value
		}
	}
	if v := cluster.Status.Version.Kubernetes; v != "" {
		p.status.Version.Kubernetes = &v
	}
	for condition, source := range map[string]string{ConditionHealthy: clusterv1.ManagedClusterConditionAvailable, ConditionJoined: clusterv1.ManagedClusterConditionJoined} {
		c := metav1.Condition{Status: metav1.ConditionUnknown, Reason: "NotKnown", Message: "The hub has not said yet", LastTransitionTime: metav1.NewTime(now.Truncate(time.Second))}
		if known := meta.FindStatusCondition(cluster.Status.Conditions, source); known != nil {
			c = *known
		}
		c.Type, c.ObservedGeneration = condition, 0
		meta.SetStatusCondition(&p.status.Conditions, c)
	}
	slices.SortStableFunc(p.status.Conditions, func(a, b metav1.Condition) int { return cmp.Compare(a.Type, b.Type) })
	return p
}

// propertiesOf returns the claims as properties, by name, with those that have another name among consumers under both. A claim
// under the other name goes before it. What the API does not take is left out.
func propertiesOf(claims []clusterv1.ManagedClusterClaim, before []property, now time.Time) []property {
	values := make(map[string]string, len(claims))
	for _, claim := range claims {
		if name, ok := standard[claim.Name]; ok {
			values[name] = claim.Value
		}
	}
	for _, claim := range claims {
		values[claim.Name] = claim.Value
	}
	observed := make(map[string]property, len(before))
	for _, p := range before {
		observed[p.Name] = p
	}
	properties := []property{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := values[name]
		if name == "" || value == "" || len(name) > maxName || len([]rune(value)) > maxValue {
			continue
		}
		p := property{Name: name, Value: value, LastObservedTime: metav1.NewTime(now.Truncate(time.Second))}
		if known, ok := observed[name]; ok && known.Value == value && !known.LastObservedTime.IsZero() {
			p.LastObservedTime = known.LastObservedTime
		}
		properties = append(properties, p)
	}
	return properties
}

// labelsPatch returns the labels of a merge patch that makes those of ours as they should be; empty for no change.
func (p profile) labelsPatch(before map[string]string) map[string]any {
	patch := map[string]any{}
	for key, want := range p.labels {
		has, ok := before[key]
		switch {
		case want == "" && ok:
			patch[key] = nil
		case want != "" && has != want:
			patch[key] = want
		}
	}
	return patch
}
