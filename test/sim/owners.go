package sim

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// ownerDifferences returns how the AppliedManifestWorks of a cluster are not those of its works, and how its objects have other owners and UIDs than these
// say.
func (w *World) ownerDifferences(c *cluster, works []workv1.ManifestWork, objects map[string]*corev1.ConfigMap) []string {
	all, err := c.works.WorkV1().AppliedManifestWorks().List(background, metav1.ListOptions{})
	if err != nil {
		panic(err)
	}
	var found []string
	declaring := map[string]*workv1.ManifestWork{}
	for i := range works {
		declaring[works[i].Name] = &works[i]
	}
	applied := map[string]*workv1.AppliedManifestWork{}
	for i := range all.Items {
		name := all.Items[i].Spec.ManifestWorkName
		applied[name] = &all.Items[i]
		if declaring[name] != nil || c.restored && w.sources.lacks(c.name, name) { // as in clusterDifferences
			continue
		}
		found = append(found, fmt.Sprintf("the AppliedManifestWork of %s of %s is left over", name, c.name))
	}
	for _, name := range slices.Sorted(maps.Keys(declaring)) {
		if work := declaring[name]; work.DeletionTimestamp == nil {
			for _, text := range recordDifferences(work, applied[name], objects) {
				found = append(found, fmt.Sprintf("the AppliedManifestWork of %s of %s %s", name, c.name, text))
			}
		}
	}
	return found
}

// recordDifferences returns how the record of a work is not that of its objects. Those that it does not manage count for nothing.
func recordDifferences(work *workv1.ManifestWork, record *workv1.AppliedManifestWork, objects map[string]*corev1.ConfigMap) []string {
	if record == nil {
		return []string{"is missing"}
	}
	var found []string
	if uid := record.Annotations[uidAnnotation]; uid != string(work.UID) {
		found = append(found, fmt.Sprintf("is that of work %s, not of %s", uid, work.UID))
	}
	recorded := map[string]string{}
	for _, r := range record.Status.AppliedResources {
		recorded[r.Name] = r.UID
	}
	all := wishes(work)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		i, o := all[name], objects[name]
		uid, listed := recorded[name]
		delete(recorded, name)
		switch {
		case o == nil || i.strategy == workv1.UpdateStrategyTypeReadOnly || i.yields() && o.Data["value"] == foreign: // wish.difference says what is wrong
		case !listed || uid != string(o.UID):
			found = append(found, fmt.Sprintf("has UID %q of ConfigMap %s, whose UID is %s", uid, name, o.UID))
		case !i.orphaned && (len(o.OwnerReferences) != 1 || o.OwnerReferences[0].UID != record.UID):
			found = append(found, fmt.Sprintf("has UID %s, and is not the one owner of ConfigMap %s: %v", record.UID, name, o.OwnerReferences))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(recorded)) {
		found = append(found, fmt.Sprintf("has ConfigMap %s, which the work does not declare", name))
	}
	return found
}
