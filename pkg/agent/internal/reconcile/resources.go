package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/workwire/workwire/pkg/agent/internal/applied"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/ownership"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/plan"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// appliedResources returns what amw is to name after the reconcile: the objects that exist, those
// that could not be read, and those that are still to be removed.
func (r *Reconciler) appliedResources(rec *reconciliation, amw *workv1.AppliedManifestWork) []applied.Resource {
	known, _ := applied.Resources(amw) // prepare has logged the error
	var resources []applied.Resource
	digests := rec.fieldsDigests()
	for i := range rec.manifests {
		m, err := &rec.manifests[i], rec.applyError(i)
		if live := rec.live(i); live != nil {
			resources = append(resources, applied.Resource{Ref: m.Ref, UID: live.GetUID(), FieldsDigest: digests[m.Ref]})
			continue
		}
		if err == nil && !rec.order.skips(i) {
			continue
		}
		for _, res := range known {
			if same := applied.SameObject(res.Ref, m.Ref) || mayBe(m, res); same && res.UID != "" && !apierrors.IsNotFound(err) {
				resources = append(resources, res)
			}
		}
	}
	for i := range rec.dropped {
		if res := r.identified(rec.dropped[i]); !rec.removals.outcomes[i].Gone && res.UID != "" {
			resources = append(resources, res)
		}
	}
	return slices.CompactFunc(resources, func(a, b applied.Resource) bool { return a == b })
}

// identified returns res with the UID of its object: if it was dropped before it was recorded, only the intent names it.
func (r *Reconciler) identified(res applied.Resource) applied.Resource {
	if live := r.Objects.Get(res.Ref); res.UID == "" && live.State == object.Present {
		res.UID = live.Object.GetUID()
	}
	return res
}

// fieldsDigest returns the digest that the AppliedManifestWork has of an object.
func (rec *reconciliation) fieldsDigest(ref object.Ref) string {
	if rec.knownDigests == nil {
		rec.knownDigests = map[object.Ref]string{}
		if rec.known != nil {
			resources, _ := applied.Resources(rec.known) // prepare has logged the error
			for _, res := range resources {
				rec.knownDigests[res.Ref] = res.FieldsDigest
			}
		}
	}
	return rec.knownDigests[ref]
}

// fieldsDigests returns the digests that the AppliedManifestWork is to have: those of what was
// applied or, where nothing was, those from before. Several manifests may be for one object.
func (rec *reconciliation) fieldsDigests() map[object.Ref]string {
	all := make(map[object.Ref]string, len(rec.manifests))
	for i := range rec.outcomes {
		ref, digest := rec.manifests[i].Ref, rec.outcomes[i].FieldsDigest
		switch before := all[ref]; {
		case before == "" && digest == "":
			all[ref] = rec.fieldsDigest(ref)
		case before == "":
			all[ref] = digest
		case digest != "" && !slices.Contains(strings.Split(before, ","), digest):
			all[ref] = before + "," + digest
		}
	}
	return all
}

// removalOf returns how a resource is to be removed. The deleteOption of spec, which may be nil,
// decides whether it is orphaned.
func (r *Reconciler) removalOf(ctx context.Context, res applied.Resource, spec *workv1.ManifestWorkSpec) (removal plan.Removal, err error) {
	removal.Ref = res.Ref
	if spec == nil {
		return removal, nil
	}
	// The object would tell its kind, but not every one is watched.
	removal.Orphan, err = strategy.Orphaned(strategy.MetaOf(res.Ref), spec.DeleteOption, func(kind string) (bool, error) {
		mapping, err := r.RESTMapper.RESTMapping(ctx, res.GroupVersion().WithKind(kind))
		if _, unknown := errors.AsType[*meta.NoKindMatchError](err); unknown {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("remove %s: find what an orphaning rule names: %w", res.Ref, err)
		}
		return mapping.Resource == res.GroupVersionResource, nil
	})
	return removal, err
}

// kept returns the objects that are orphaned and may have an owner reference of an earlier spec: they must not be written, their manifest
// is invalid or waits, or its last attempt failed. Those that a manifest of an unresolved kind may be about stay listed.
func (rec *reconciliation) kept() (refs []object.Ref) {
	before := applied.Kept(rec.known)
	for i := range rec.manifests {
		m := &rec.manifests[i]
		for _, ref := range before {
			if mayBe(m, applied.Resource{Ref: ref}) {
				refs = append(refs, ref)
			}
		}
		if m.Ref == (object.Ref{}) || m.Owned {
			continue
		}
		f := rec.history().failures[i]
		failed := !rec.changed && f != nil && f.outcome.Err != nil
		if readOnly(m) || m.Err != nil || (failed || rec.order.waits(i) || rec.withholds(i) != nil) && rec.mayOwn(i) {
			refs = append(refs, m.Ref)
		}
	}
	return refs
}

// mayOwn reports whether the object of manifest i has a reference to the AppliedManifestWork, as far as is known.
func (rec *reconciliation) mayOwn(i int) bool {
	if rec.known == nil {
		return false
	}
	live := &rec.observed[i].live
	return live.State == object.Unknown || live.State == object.Present && ownership.Has(live.Object, rec.known.UID)
}

// refsOf returns the objects of resources.
func refsOf(resources []applied.Resource) []object.Ref {
	refs := make([]object.Ref, len(resources))
	for i := range resources {
		refs[i] = resources[i].Ref
	}
	return refs
}
