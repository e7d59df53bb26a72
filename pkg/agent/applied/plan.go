package applied

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/object"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// UIDAnnotation carries the UID of the work on its AppliedManifestWork, so that
// a deletion that names nothing else finds it, and so that an agent that starts
// without state can ask after it.
const UIDAnnotation = "workwire.dev/work-uid"

// LabelsAnnotation lists, on an AppliedManifestWork, the keys of the labels that it
// has from its work, sorted and separated by commas, so that a label that the work
// loses is taken off again, and those of others stay. The label that names the
// source is not among them: it always stays.
const LabelsAnnotation = "workwire.dev/work-labels"

// Work is the work that an AppliedManifestWork stands for.
type Work struct {
	Name   string
	UID    types.UID
	Source wire.SourceID
	Labels map[string]string
}

// Resource is an object of a work: what it is, and its UID where one is known.
type Resource struct {
	object.Ref
	UID types.UID
}

// SameObject reports whether two refs name the same object: its version does not
// matter.
func SameObject(a, b object.Ref) bool {
	return a.GroupResource() == b.GroupResource() && a.Namespace == b.Namespace && a.Name == b.Name
}

// identity is a ref without the version.
func identity(ref object.Ref) object.Ref {
	ref.Version = ""
	return ref
}

// Resources are all objects that may have been applied for the work of record:
// those recorded, with their UIDs, and those only intended, without. They are
// sorted. An annotation that can not be read is as good as none, and reported.
func Resources(record *workv1.AppliedManifestWork) ([]Resource, error) {
	resources := make([]Resource, 0, len(record.Status.AppliedResources))
	known := make(map[object.Ref]struct{}, len(record.Status.AppliedResources))
	for i := range record.Status.AppliedResources {
		r := &record.Status.AppliedResources[i]
		ref := object.Ref{
			GroupVersionResource: schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource},
			Namespace:            r.Namespace, Name: r.Name,
		}
		known[identity(ref)] = struct{}{}
		resources = append(resources, Resource{Ref: ref, UID: types.UID(r.UID)})
	}
	value, ok := record.Annotations[IntentAnnotation]
	if !ok {
		return resources, nil
	}
	intended, err := decodeIntent(value)
	for _, ref := range intended {
		if _, ok := known[identity(ref)]; !ok {
			resources = append(resources, Resource{Ref: ref})
		}
	}
	slices.SortFunc(resources, func(a, b Resource) int { return compareRefs(a.Ref, b.Ref) })
	return resources, err
}

// Dropped are the resources of record that are none of wanted any more.
func Dropped(resources []Resource, wanted []object.Ref) []Resource {
	keep := make(map[object.Ref]struct{}, len(wanted))
	for _, ref := range wanted {
		keep[identity(ref)] = struct{}{}
	}
	var dropped []Resource
	for _, r := range resources {
		if _, ok := keep[identity(r.Ref)]; !ok {
			dropped = append(dropped, r)
		}
	}
	return dropped
}

// statusOf lists resources as an AppliedManifestWork does, sorted.
func statusOf(resources []Resource) []workv1.AppliedManifestResourceMeta {
	sorted := slices.Clone(resources)
	slices.SortFunc(sorted, func(a, b Resource) int { return compareRefs(a.Ref, b.Ref) })
	list := make([]workv1.AppliedManifestResourceMeta, 0, len(sorted))
	for _, r := range sorted {
		list = append(list, workv1.AppliedManifestResourceMeta{
			ResourceIdentifier: workv1.ResourceIdentifier{Group: r.Group, Resource: r.Resource, Namespace: r.Namespace, Name: r.Name},
			Version:            r.Version, UID: string(r.UID),
		})
	}
	return list
}

// desiredRecord is the AppliedManifestWork that work needs before intended are
// applied.
func (r *Client) desiredRecord(name, hubHash string, work Work, intended []object.Ref) (*workv1.AppliedManifestWork, error) {
	value, err := encodeIntent(intended)
	if err != nil {
		return nil, err
	}
	annotations := map[string]string{IntentAnnotation: value, UIDAnnotation: string(work.UID)}
	labels := maps.Clone(work.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	delete(labels, workv1.OriginalSourceLabelKey)
	if len(labels) > 0 {
		annotations[LabelsAnnotation] = strings.Join(slices.Sorted(maps.Keys(labels)), ",")
	}
	if source := cmp.Or(string(work.Source), work.Labels[workv1.OriginalSourceLabelKey]); source != "" {
		labels[workv1.OriginalSourceLabelKey] = source
	}
	return &workv1.AppliedManifestWork{
		TypeMeta: metav1.TypeMeta{APIVersion: workv1.GroupVersion.String(), Kind: "AppliedManifestWork"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      labels,
			Annotations: annotations,
			Finalizers:  []string{workv1.AppliedManifestWorkFinalizer},
		},
		Spec: workv1.AppliedManifestWorkSpec{HubHash: hubHash, AgentID: r.config.AgentID, ManifestWorkName: work.Name},
	}, nil
}

// adopt gives the merge patch that makes record serve as desired, whose
// intention is intended, or nil when it does already. Labels follow the work:
// they are set, changed, and taken off when the work had them and has them no
// more. What record has beyond that, labels and annotations of others included,
// stays; an intention only grows here, and forgets what is gone when it does.
func adopt(record, desired *workv1.AppliedManifestWork, intended []object.Ref) (map[string]any, error) {
	metadata, annotations := map[string]any{}, map[string]any{}
	if labels := adoptLabels(record, desired); len(labels) > 0 {
		metadata["labels"] = labels
	}
	if have, want := record.Annotations[LabelsAnnotation], desired.Annotations[LabelsAnnotation]; want == "" && have != "" {
		annotations[LabelsAnnotation] = nil
	} else if want != have {
		annotations[LabelsAnnotation] = want
	}
	if uid := desired.Annotations[UIDAnnotation]; record.Annotations[UIDAnnotation] != uid {
		annotations[UIDAnnotation] = uid
	}
	grown, err := grow(record, intended)
	if err != nil {
		return nil, err
	}
	if grown != "" {
		annotations[IntentAnnotation] = grown
	}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	if !slices.Contains(record.Finalizers, workv1.AppliedManifestWorkFinalizer) {
		metadata["finalizers"] = append(slices.Clone(record.Finalizers), workv1.AppliedManifestWorkFinalizer)
		metadata["resourceVersion"] = record.ResourceVersion
	}
	patch := map[string]any{}
	if record.Spec != desired.Spec {
		patch["spec"] = desired.Spec
	}
	if len(metadata) == 0 && len(patch) == 0 {
		return nil, nil
	}
	metadata["uid"] = record.UID
	patch["metadata"] = metadata
	return patch, nil
}

// adoptLabels gives the labels that record has to get, and, as nil, those that
// it has to lose.
func adoptLabels(record, desired *workv1.AppliedManifestWork) map[string]any {
	labels := map[string]any{}
	for k, v := range desired.Labels {
		if have, ok := record.Labels[k]; !ok || have != v {
			labels[k] = v
		}
	}
	for k := range strings.SplitSeq(record.Annotations[LabelsAnnotation], ",") {
		_, has := record.Labels[k]
		if _, wanted := desired.Labels[k]; has && !wanted && k != workv1.OriginalSourceLabelKey {
			labels[k] = nil
		}
	}
	return labels
}

// grow gives the new value of the intention when intended names an object that
// record does not know, else nothing.
func grow(record *workv1.AppliedManifestWork, intended []object.Ref) (string, error) {
	resources, err := Resources(record)
	known := make(map[object.Ref]struct{}, len(resources))
	for _, r := range resources {
		known[identity(r.Ref)] = struct{}{}
	}
	// An unreadable annotation is replaced by a readable one.
	grows := err != nil
	for _, ref := range intended {
		if _, ok := known[identity(ref)]; !ok {
			grows = true
			break
		}
	}
	if !grows {
		return "", nil
	}
	return encodeIntent(intended)
}

func sortRefs(refs []object.Ref) { slices.SortFunc(refs, compareRefs) }

func compareRefs(a, b object.Ref) int {
	return cmp.Or(
		cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Resource, b.Resource),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
	)
}
