package replicaset

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
)

// hashLength is how many hexadecimal digits of the hash are in the name of a
// work.
const hashLength = 10

// WorkName is the name of the works that set has for the clusters of placement,
// one in the namespace of each cluster. The same set and placement always have
// the same name, so that a cluster can never get two works; different ones have
// different names, also when sets of several namespaces share theirs. It is
// longer than the name of the set by 11 characters.
func WorkName(set types.NamespacedName, placement string) string {
	// Neither namespaces nor names have a slash in them.
	sum := sha256.Sum256([]byte(set.Namespace + "/" + set.Name + "/" + placement))
	return set.Name + "-" + hex.EncodeToString(sum[:])[:hashLength]
}

// Label is the value of the label work.open-cluster-management.io/manifestworkreplicaset
// on the works of set: "<namespace>.<name>". A set for which this is no label
// value, as it is longer than 63 characters, can have no works.
func Label(set types.NamespacedName) string { return set.Namespace + "." + set.Name }

// setOf gives the set that a work bears this label for. The first dot is the one
// between namespace and name: namespaces have none.
func setOf(label string) (types.NamespacedName, bool) {
	namespace, name, ok := strings.Cut(label, ".")
	return types.NamespacedName{Namespace: namespace, Name: name}, ok && namespace != "" && name != ""
}

// nameFault says why works of the set can not be labelled; empty when they can.
func nameFault(set *workv1alpha1.ManifestWorkReplicaSet) string {
	label := Label(nameOf(set))
	if faults := validation.IsValidLabelValue(label); len(faults) > 0 {
		return fmt.Sprintf("<namespace>.<name> of the set is %q, which works can not have as label %s: %s; give the set a shorter name",
			label, workv1.ReplicaSetLabelKey, strings.Join(faults, "; "))
	}
	for _, ref := range set.Spec.PlacementRefs {
		if faults := validation.IsValidLabelValue(ref.Name); len(faults) > 0 {
			return fmt.Sprintf("the name of placement %q can not be the label %s of works: %s; give the placement a shorter name",
				ref.Name, workv1.PlacementNameLabelKey, strings.Join(faults, "; "))
		}
	}
	return ""
}

func nameOf(object interface {
	GetNamespace() string
	GetName() string
}) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}
