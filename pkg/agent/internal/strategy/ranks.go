package strategy

// rankByKind is the order in which kinds, whatever their group, are applied. Other kinds come last.
var rankByKind = ranksByKind([][]string{
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

// lastRank is the rank of all other kinds.
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

// Ranks returns the order of applying: groups of indexes of manifests, namespaces and definitions
// first, then roles, and so on. Each group is applied after the one before; within a group the
// order does not matter. Groups are in spec order and not empty. Manifests with Err set are
// included.
func Ranks(manifests []Manifest) [][]int {
	var byRank [lastRank + 1][]int
	for i := range manifests {
		rank, ok := rankByKind[manifests[i].Meta.Kind]
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
