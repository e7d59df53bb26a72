package agent

import (
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/applied"
	"github.com/workwire/workwire/pkg/agent/object"
	"github.com/workwire/workwire/pkg/agent/strategy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// dropped gives the objects that the record names and the manifests do not. An
// object that an unresolved manifest may be about is none of them: a kind that
// can not be looked up just now is no reason to delete.
func (a *Agent) dropped(u *under, record *workv1.AppliedManifestWork, wanted []object.Ref) []applied.Resource {
	resources, err := applied.Resources(record)
	if err != nil {
		u.logger.Warn("what was about to be applied is not known", "appliedManifestWork", record.Name, "error", err)
	}
	return slices.DeleteFunc(applied.Dropped(resources, wanted), func(r applied.Resource) bool {
		if _, gone := u.memory.gone[r.Ref]; gone && r.UID == "" {
			return true
		}
		return slices.ContainsFunc(u.manifests, func(m strategy.Manifest) bool { return mayBe(&m, r) })
	})
}

// mayBe says whether a manifest whose kind is not resolved may be about r.
func mayBe(m *strategy.Manifest, r applied.Resource) bool {
	return m.Ref == object.Ref{} && m.Meta.Group == r.Group && m.Meta.Name == r.Name
}

// entriesOf says what is to become of resources that spec does not name any more,
// or not for long: its deleteOption holds for them as for all others.
func (a *Agent) entriesOf(resources []applied.Resource, spec *workv1.ManifestWorkSpec) []strategy.Entry {
	entries := make([]strategy.Entry, len(resources))
	for i, r := range resources {
		entries[i] = strategy.Entry{Ref: r.Ref, UID: r.UID}
		if spec == nil || spec.DeleteOption == nil {
			continue
		}
		meta := workv1.ManifestResourceMeta{Group: r.Group, Version: r.Version, Resource: r.Resource, Namespace: r.Namespace, Name: r.Name}
		if live := a.objects.Get(r.Ref); live.State == object.Present {
			meta.Kind = live.Object.GetKind() // a rule may name it instead of the resource
		}
		entries[i].Orphan = !strategy.Owned(meta, spec.DeleteOption)
	}
	return entries
}

// resourcesOf lists what the record is to name after a pass: the objects that
// exist, what could not be looked at, and what is still to be removed.
func resourcesOf(u *under, record *workv1.AppliedManifestWork, dropped []applied.Resource, removals []strategy.RemoveOutcome) []applied.Resource {
	known, _ := applied.Resources(record) // what is unreadable was reported when it was read
	var resources []applied.Resource
	for i := range u.manifests {
		m, err := &u.manifests[i], u.faultOf(i)
		if live := u.liveOf(i); live != nil {
			resources = append(resources, applied.Resource{Ref: m.Ref, UID: live.GetUID()})
			continue
		}
		if err == nil {
			continue
		}
		for _, r := range known {
			if same := applied.SameObject(r.Ref, m.Ref) || mayBe(m, r); same && r.UID != "" && !apierrors.IsNotFound(err) {
				resources = append(resources, r)
			}
		}
	}
	for i := range dropped {
		if !removals[i].Gone && dropped[i].UID != "" {
			resources = append(resources, dropped[i])
		}
	}
	return slices.CompactFunc(resources, func(a, b applied.Resource) bool { return a == b })
}

func refsOf(manifests []strategy.Manifest) []object.Ref {
	refs := make([]object.Ref, 0, len(manifests))
	known := make(map[object.Ref]struct{}, len(manifests))
	for i := range manifests {
		ref := manifests[i].Ref
		if _, twice := known[ref]; ref != (object.Ref{}) && !twice {
			known[ref] = struct{}{}
			refs = append(refs, ref)
		}
	}
	return refs
}

func unknownKinds(manifests []strategy.Manifest) []schema.GroupKind {
	var unknown []schema.GroupKind
	for i := range manifests {
		var err *meta.NoKindMatchError
		if errors.As(manifests[i].Err, &err) {
			unknown = append(unknown, err.GroupKind)
		}
	}
	return unknown
}
