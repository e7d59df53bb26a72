package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"

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
