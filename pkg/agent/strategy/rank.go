package strategy

// rankOf orders kinds, whatever their group, by what has to exist first. Kinds
// that it does not name come last.
var rankOf = ranksByKind([][]string{
	{"PriorityClass", "Namespace", "CustomResourceDefinition", "StorageClass", "PersistentVolume", "PodSecurityPolicy"},
	{"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"},
	{"NetworkPolicy", "ResourceQuota", "LimitRange", "PodDisruptionBudget", "ServiceAccount"},
	{"Secret", "ConfigMap", "PersistentVolumeClaim"},
	{"Service"},
	{
		"DaemonSet", "Pod", "ReplicationController", "ReplicaSet", "Deployment", "HorizontalPodAutoscaler",
		"StatefulSet", "Job", "CronJob",
	},
	{
		"APIService", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	},
})

// lastRank is that of all other kinds.
const lastRank = 7

func ranksByKind(ranks [][]string) map[string]int {
	byKind := map[string]int{}
	for rank, kinds := range ranks {
		for _, kind := range kinds {
			byKind[kind] = rank
		}
	}
	return byKind
}

// Ranks gives the order of applying: the indexes of manifests, grouped by what
// has to exist first (namespaces and definitions, then roles, and so on). A group
// is applied after the one before; within a group, which is in spec order, the
// order does not matter. No group is empty. Manifests with Err set are included.
func Ranks(manifests []Manifest) [][]int {
	var byRank [lastRank + 1][]int
	for i := range manifests {
		rank, ok := rankOf[manifests[i].Meta.Kind]
		if !ok {
			rank = lastRank
		}
		byRank[rank] = append(byRank[rank], i)
	}
	var ranks [][]int
	for _, rank := range byRank {
		if len(rank) > 0 {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}
