package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// hashLength is the number of hexadecimal digits of the hash in the name of a work.
const hashLength = 10

// WorkName returns the name of the works of a ManifestWorkReplicaSet for the clusters of a placement. Each cluster
// namespace has one of them. The name depends only on the set and the placement, so that a cluster
// cannot get two works, and different sets and placements have different names. It is 11 characters
// longer than the name of the set.
func WorkName(set types.NamespacedName, placement string) string {
	// Namespaces and names contain no slash.
	sum := sha256.Sum256([]byte(set.Namespace + "/" + set.Name + "/" + placement))
	return set.Name + "-" + hex.EncodeToString(sum[:])[:hashLength]
}

// WorkLabel returns the value of the label work.open-cluster-management.io/manifestworkreplicaset on
// the works of a set: "<namespace>.<name>". A set cannot have works if this is longer than 63
// characters, and so not a valid label value.
func WorkLabel(set types.NamespacedName) string { return set.Namespace + "." + set.Name }

// ParseWorkLabel returns the set of a [WorkLabel]. The first dot separates namespace and name, since namespaces contain no dot.
func ParseWorkLabel(label string) (types.NamespacedName, bool) {
	namespace, name, ok := strings.Cut(label, ".")
	return types.NamespacedName{Namespace: namespace, Name: name}, ok && namespace != "" && name != ""
}
