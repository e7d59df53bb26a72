package strategy

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// updatersOf sorts the owners of an object's fields for Update: what we wrote, by
// one of the managers, and what others did. An entry of ours in another API version
// counts as nobody's: its fields stay.
func updatersOf(live *unstructured.Unstructured, managers []string) fieldOwners {
	return ownersOf(live, func(entry metav1.ManagedFieldsEntry) whose {
		switch {
		case !slices.Contains(managers, entry.Manager) || entry.Subresource != "":
			return others
		case entry.APIVersion != live.GetAPIVersion():
			return nobodys
		default:
			return ours
		}
	})
}

// dropUndeclared removes from next the fields that we wrote, that the manifest
// does not declare and that nobody else owns, and gives their JSON pointers,
// sorted. Among them may be defaults; the API server sets them again. Lists that
// the manifest declares are left to the merge.
func dropUndeclared(next, desired *unstructured.Unstructured, owners fieldOwners, quirks quirks) []string {
	var dropped []string
	for key, live := range next.Object {
		if notBody[key] || quirks.leave[key] || slices.Contains(quirks.exact, key) {
			continue
		}
		dropped = append(dropped, dropField(next.Object, live, desired.Object[key], owners, &pointer{key: key})...)
	}
	slices.Sort(dropped)
	return dropped
}

// dropField treats the field that at ends in; owners are those of its parent.
func dropField(in map[string]any, live, want any, owners fieldOwners, at *pointer) []string {
	element := fieldpath.PathElement{FieldName: &at.key}
	oursBelow, anyOurs := owners.ours.Children.Get(element)
	othersBelow, anyOthers := owners.others.Children.Get(element)
	ours := owners.ours.Members.Has(element)
	others := owners.others.Members.Has(element) || anyOthers
	if want == nil && ours && !others {
		delete(in, at.key)
		return []string{at.String()}
	}
	fields, isMap := live.(map[string]any)
	wanted, wantsMap := want.(map[string]any)
	if !isMap || !anyOurs || want != nil && !wantsMap {
		return nil
	}
	below := fieldOwners{ours: oursBelow, others: othersBelow}
	if !anyOthers {
		below.others = fieldpath.NewSet()
	}
	var dropped []string
	for key, value := range fields {
		dropped = append(dropped, dropField(fields, value, wanted[key], below, &pointer{parent: at, key: key})...)
	}
	if want == nil && len(fields) == 0 && !others {
		delete(in, at.key)
	}
	return dropped
}
