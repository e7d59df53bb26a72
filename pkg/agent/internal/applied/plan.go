package applied

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// UIDAnnotation holds the UID of the work on its AppliedManifestWork. With it, a deletion event
// that has only a UID finds its work, and an agent without state can ask the source for the work.
const UIDAnnotation = "workwire.dev/work-uid"

// LabelsAnnotation lists, on an AppliedManifestWork, the keys of the labels that come from its
// work, sorted and separated by commas. Labels that the work loses are removed; labels that others
// set stay. The list does not include the label with the source, which is never removed.
const LabelsAnnotation = "workwire.dev/work-labels"

// SourceIdentityAnnotation holds, on an AppliedManifestWork, the identity of the source that sent
// the work.
const SourceIdentityAnnotation = "workwire.dev/source-identity"

// KeptAnnotation lists, on an AppliedManifestWork, the objects that stay when its work is deleted, and that may still have its
// owner reference, because the agent must not write them, or has not yet been able to. An agent without the spec goes by it. Its value is like that of
// [IntentAnnotation].
const KeptAnnotation = "workwire.dev/kept-resources"

// Work is the work of an AppliedManifestWork.
type Work struct {
	Name   string
	UID    types.UID
	Source wire.SourceID
	Labels map[string]string
	// SourceIdentity is that of the source that sent the work; it may be empty.
	SourceIdentity string
	// HeldReason is the reason why its deletion is held; empty if it is not.
	HeldReason string
	// Order is the start of the order of its spec. It replaces that of another spec.
	Order Order
	// Kept are the objects of [KeptAnnotation].
	Kept []object.Ref
}

// Kept returns the objects of [KeptAnnotation], none if it cannot be read. amw may be nil.
func Kept(amw *workv1.AppliedManifestWork) []object.Ref {
	if amw == nil {
		return nil
	}
	kept, err := decodeIntent(amw.Annotations[KeptAnnotation])
	if err != nil {
		return nil
	}
	return kept
}

// encodeKept returns the value of [KeptAnnotation].
func encodeKept(kept []object.Ref) (string, error) {
	return encodeIntent(slices.Compact(slices.SortedFunc(slices.Values(kept), compareRefs)))
}

// DeleteOption returns the deleteOption to go by where the spec of the work of amw is not known, nil for none.
func DeleteOption(amw *workv1.AppliedManifestWork) *workv1.DeleteOption {
	kept := Kept(amw)
	if len(kept) == 0 {
		return nil
	}
	rules := make([]workv1.OrphaningRule, len(kept))
	for i, ref := range kept {
		rules[i] = workv1.OrphaningRule{Group: ref.Group, Resource: ref.Resource, Namespace: ref.Namespace, Name: ref.Name}
	}
	return &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeSelectivelyOrphan, SelectivelyOrphan: &workv1.SelectivelyOrphan{OrphaningRules: rules}}
}

// Released reports whether the hold of the work of amw has been released: by the annotation, or
// because somebody deletes amw.
func Released(amw *workv1.AppliedManifestWork) bool {
	annotated := amw.Annotations[workv1.HeldAnnotation] != "" && amw.Annotations[workv1.ReleaseAnnotation] == "true"
	return annotated || amw.DeletionTimestamp != nil
}

// Resource is an object of a work. UID and FieldsDigest are empty if they are unknown.
type Resource struct {
	object.Ref
	UID types.UID
	// FieldsDigest is what the strategy of the object has to know after a restart.
	FieldsDigest string
}

// SameObject reports whether two refs are the same object, possibly in different versions.
func SameObject(a, b object.Ref) bool {
	return a.GroupResource() == b.GroupResource() && a.Namespace == b.Namespace && a.Name == b.Name
}

// identity returns ref without the version.
func identity(ref object.Ref) object.Ref {
	ref.Version = ""
	return ref
}

// Resources returns all objects that may have been applied for the work of amw, sorted: those of
// its status, with UIDs, and those that were only intended, without. If the annotation with the
// intended objects cannot be read, it returns the others and an error.
func Resources(amw *workv1.AppliedManifestWork) ([]Resource, error) {
	resources := make([]Resource, 0, len(amw.Status.AppliedResources))
	known := make(sets.Set[object.Ref], len(amw.Status.AppliedResources))
	for i := range amw.Status.AppliedResources {
		r := &amw.Status.AppliedResources[i]
		ref := object.Ref{
			GroupVersionResource: schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource},
			Namespace:            r.Namespace, Name: r.Name,
		}
		known.Insert(identity(ref))
		resources = append(resources, Resource{Ref: ref, UID: types.UID(r.UID), FieldsDigest: r.FieldsDigest})
	}
	value, ok := amw.Annotations[IntentAnnotation]
	if !ok {
		return resources, nil
	}
	intended, err := decodeIntent(value)
	for _, ref := range intended {
		if !known.Has(identity(ref)) {
			resources = append(resources, Resource{Ref: ref})
		}
	}
	slices.SortFunc(resources, func(a, b Resource) int { return compareRefs(a.Ref, b.Ref) })
	return resources, err
}

// Dropped returns the resources that are not in wanted.
func Dropped(resources []Resource, wanted []object.Ref) []Resource {
	keep := make(sets.Set[object.Ref], len(wanted))
	for _, ref := range wanted {
		keep.Insert(identity(ref))
	}
	return slices.DeleteFunc(slices.Clone(resources), func(r Resource) bool { return keep.Has(identity(r.Ref)) })
}

// statusOf returns resources as in the status of an AppliedManifestWork, sorted.
func statusOf(resources []Resource) []workv1.AppliedManifestResourceMeta {
	sorted := slices.Clone(resources)
	slices.SortFunc(sorted, func(a, b Resource) int { return compareRefs(a.Ref, b.Ref) })
	list := make([]workv1.AppliedManifestResourceMeta, 0, len(sorted))
	for _, r := range sorted {
		list = append(list, workv1.AppliedManifestResourceMeta{
			ResourceIdentifier: workv1.ResourceIdentifier{Group: r.Group, Resource: r.Resource, Namespace: r.Namespace, Name: r.Name},
			Version:            r.Version, UID: string(r.UID), FieldsDigest: r.FieldsDigest,
		})
	}
	return list
}

// desired returns the AppliedManifestWork to create for work before intended are applied.
func (c *Client) desired(name, hubHash string, work Work, intended []object.Ref) (*workv1.AppliedManifestWork, error) {
	value, err := encodeIntent(intended)
	if err != nil {
		return nil, err
	}
	annotations := map[string]string{IntentAnnotation: value, UIDAnnotation: string(work.UID)}
	labels := map[string]string{}
	maps.Copy(labels, work.Labels)
	delete(labels, workv1.OriginalSourceLabelKey)
	if len(labels) > 0 {
		annotations[LabelsAnnotation] = strings.Join(slices.Sorted(maps.Keys(labels)), ",")
	}
	if work.SourceIdentity != "" {
		annotations[SourceIdentityAnnotation] = work.SourceIdentity
	}
	if work.HeldReason != "" {
		annotations[workv1.HeldAnnotation] = work.HeldReason
	}
	if order := work.Order.String(); order != "" {
		annotations[OrderAnnotation] = order
	}
	if len(work.Kept) > 0 {
		if annotations[KeptAnnotation], err = encodeKept(work.Kept); err != nil {
			return nil, err
		}
	}
	if c.config.Cluster != "" {
		annotations[ClusterAnnotation] = string(c.config.Cluster)
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
		Spec: workv1.AppliedManifestWorkSpec{HubHash: hubHash, AgentID: c.config.AgentID, ManifestWorkName: work.Name},
	}, nil
}

// updatePatch returns the merge patch from amw to desired, whose intended objects are intended, or
// nil if there is nothing to change. It sets, changes and removes the labels of the work. Labels
// and annotations of others stay. The intended objects are replaced only if there are new ones.
func updatePatch(amw, desired *workv1.AppliedManifestWork, intended []object.Ref) (map[string]any, error) {
	metadata, annotations := map[string]any{}, map[string]any{}
	if labels := labelsPatch(amw, desired); len(labels) > 0 {
		metadata["labels"] = labels
	}
	for _, key := range []string{LabelsAnnotation, KeptAnnotation} {
		if have, want := amw.Annotations[key], desired.Annotations[key]; want == "" && have != "" {
			annotations[key] = nil
		} else if want != have {
			annotations[key] = want
		}
	}
	if uid := desired.Annotations[UIDAnnotation]; amw.Annotations[UIDAnnotation] != uid {
		annotations[UIDAnnotation] = uid
	}
	if OrderOf(amw).Spec != OrderOf(desired).Spec {
		annotations[OrderAnnotation] = nil
		if start, ordered := desired.Annotations[OrderAnnotation]; ordered {
			annotations[OrderAnnotation] = start
		}
	}
	grown, err := intentPatch(amw, intended)
	if err != nil {
		return nil, err
	}
	if grown != "" {
		annotations[IntentAnnotation] = grown
	}
	maps.Copy(annotations, heldPatch(amw, desired.Annotations[workv1.HeldAnnotation]))
	unwritten := map[string]any{}
	for _, key := range []string{SourceIdentityAnnotation, ClusterAnnotation} {
		switch have, want := amw.Annotations[key], desired.Annotations[key]; {
		case want == "" || have == want:
		case have == "":
			unwritten[key] = want // not worth a request of its own
		default:
			annotations[key] = want
		}
	}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	if !slices.Contains(amw.Finalizers, workv1.AppliedManifestWorkFinalizer) {
		metadata["finalizers"] = append(slices.Clone(amw.Finalizers), workv1.AppliedManifestWorkFinalizer)
	}
	patch := map[string]any{}
	if amw.Spec != desired.Spec {
		patch["spec"] = desired.Spec
	}
	if len(metadata) == 0 && len(patch) == 0 {
		return nil, nil
	}
	if maps.Copy(annotations, unwritten); len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	metadata["uid"], metadata["resourceVersion"] = amw.UID, amw.ResourceVersion
	patch["metadata"] = metadata
	return patch, nil
}

// heldPatch returns the annotations to change so that amw is held for reason, which is empty if its
// work is not held. A release of an earlier hold does not release this one.
func heldPatch(amw *workv1.AppliedManifestWork, reason string) map[string]any {
	annotations := map[string]any{}
	have, known := amw.Annotations[workv1.HeldAnnotation]
	if have == reason {
		return annotations
	}
	if reason != "" {
		annotations[workv1.HeldAnnotation] = reason
	} else if known {
		annotations[workv1.HeldAnnotation] = nil
	}
	if _, released := amw.Annotations[workv1.ReleaseAnnotation]; released {
		annotations[workv1.ReleaseAnnotation] = nil
	}
	return annotations
}

// labelsPatch returns the labels to set, and as nil those to remove.
func labelsPatch(amw, desired *workv1.AppliedManifestWork) map[string]any {
	labels := map[string]any{}
	for k, v := range desired.Labels {
		if have, ok := amw.Labels[k]; !ok || have != v {
			labels[k] = v
		}
	}
	for k := range strings.SplitSeq(amw.Annotations[LabelsAnnotation], ",") {
		_, has := amw.Labels[k]
		if _, wanted := desired.Labels[k]; has && !wanted && k != workv1.OriginalSourceLabelKey {
			labels[k] = nil
		}
	}
	return labels
}

// intentPatch returns the new value of IntentAnnotation if intended contains an object that amw
// does not list, or "".
func intentPatch(amw *workv1.AppliedManifestWork, intended []object.Ref) (string, error) {
	resources, err := Resources(amw)
	known := make(sets.Set[object.Ref], len(resources))
	for _, r := range resources {
		known.Insert(identity(r.Ref))
	}
	unlisted := func(ref object.Ref) bool { return !known.Has(identity(ref)) }
	// An annotation that cannot be read is replaced.
	if err != nil || slices.ContainsFunc(intended, unlisted) {
		return encodeIntent(intended)
	}
	return "", nil
}

func compareRefs(a, b object.Ref) int {
	return cmp.Or(
		cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Resource, b.Resource),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
	)
}
