package delivery

import (
	"cmp"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// revision identifies a state of a work as far as agents need to know it. The zero value is none.
type revision struct {
	generation wire.Generation
	deleting   bool
	metadata   uint64
}

func revisionOf(work *workv1.ManifestWork) revision {
	return revision{wire.Generation(work.Generation), work.DeletionTimestamp != nil, metadataHash(&work.ObjectMeta)}
}

// metadataHash returns a hash of the labels and annotations that agents receive.
func metadataHash(m *metav1.ObjectMeta) uint64 {
	sum := fnv.New64a()
	for _, set := range []map[string]string{m.Labels, m.Annotations} {
		for _, key := range slices.Sorted(maps.Keys(set)) {
			if key == corev1.LastAppliedConfigAnnotation {
				continue
			}
			sum.Write([]byte(key))
			sum.Write([]byte{0})
			sum.Write([]byte(set[key]))
			sum.Write([]byte{0})
		}
		sum.Write([]byte{1})
	}
	return sum.Sum64()
}

// metadataFor returns the part of a work's metadata that agents receive, without fields that only
// concern the hub and without the last-applied-configuration annotation.
func metadataFor(m *metav1.ObjectMeta) metav1.ObjectMeta {
	slim := metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID,
		Generation: m.Generation, ResourceVersion: strconv.FormatInt(m.Generation, 10), CreationTimestamp: m.CreationTimestamp,
		Labels: m.Labels, Annotations: m.Annotations,
	}
	if _, ok := slim.Annotations[corev1.LastAppliedConfigAnnotation]; ok {
		slim.Annotations = maps.Clone(slim.Annotations)
		delete(slim.Annotations, corev1.LastAppliedConfigAnnotation)
	}
	return slim
}

// plan is what an attempt does: publish spec, or, if spec is nil, only record revision. planPublish and planDeletion say why.
type plan struct {
	spec     *wire.Spec
	revision revision // none: the source does not show the work, for now
	// known reports that the agent has revision although this Engine did not publish it.
	known bool
	// more reports that another publish must follow this one.
	more bool
}

// planPublish plans the publish of a work in state a. stored is the current work, the zero value if the source
// does not have it. The spec has no Bundle.
func planPublish(a *workRecord, stored StoredWork, source wire.SourceID, now time.Time) plan {
	work := stored.Work
	if work == nil {
		return planDeletion(a, source, now)
	}
	p := plan{revision: revisionOf(work)}
	if last := undeliveredSpec(a, work); last != (revision{}) {
		p.revision, p.more = last, true
	}
	switch {
	case a.refused != nil && a.refused.revision == p.revision && (!p.more || a.refused.holds):
		return p // it would be refused again
	case p.revision.deleting && a.said == saidDeleted && a.intent < repeat:
		return p // the agent has deleted the work
	case a.intent < repeat && a.published == p.revision:
		return p // it was published
	case a.intent < repeat && a.published == (revision{}) && !a.authoritative && !p.revision.deleting && known(a, stored):
		p.known = true
		return p
	}
	meta := metadataFor(&work.ObjectMeta)
	if p.more {
		meta.Generation, meta.ResourceVersion = int64(p.revision.generation), strconv.FormatInt(int64(p.revision.generation), 10)
	}
	p.spec = a.spec(p.revision, source, meta)
	if p.revision.deleting {
		p.spec.DeletionTimestamp = work.DeletionTimestamp
	} else {
		p.spec.Authoritative = a.authoritative
	}
	return p
}

// known reports whether the agent has the newest state of a work that this Engine has not published. What it reports says
// nothing about labels and annotations.
func known(a *workRecord, stored StoredWork) bool {
	work := stored.Work
	return max(a.confirmed, confirmedBy(work)) >= wire.Generation(work.Generation) && !stored.Relabeled && !waits(work)
}

// waits reports whether the agent has not applied a work, perhaps because of an annotation that it had.
func waits(work *workv1.ManifestWork) bool {
	applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
	return applied != nil && (applied.Status == metav1.ConditionUnknown ||
		applied.Reason == workv1.ReasonInvalidApplyAt || applied.Reason == workv1.ReasonInvalidDependsOn || applied.Reason == workv1.ReasonDependencyCycle)
}

// undeliveredSpec returns the revision to publish before the deletion of work: its last spec, since
// the agent deletes by the deleteOption in it. (The deletion increments the generation.) It returns
// the zero revision if the agent has no spec of the work, has the last one, or has deleted the
// work; and if the last one cannot be published, unless it keeps objects that the agent may hold. An agent
// that sent a resync request may have missed earlier publishes: then only what it confirmed counts. One that knows the work from its
// AppliedManifestWork alone has lost what it had reported before.
func undeliveredSpec(a *workRecord, work *workv1.ManifestWork) revision {
	if work.DeletionTimestamp == nil {
		return revision{}
	}
	had, starts := max(a.confirmed, confirmedBy(work)), a.startsDeletion(work)
	agentHas := had
	if a.recorded && !starts {
		agentHas = a.confirmed
	}
	if a.intent < missed {
		agentHas = max(agentHas, a.published.generation)
	}
	hasSome := max(had, agentHas) > 0 || a.recorded && keepsObjects(work) && !starts
	last := revisionOf(work)
	last.generation--
	if a.said == saidDeleted || !hasSome || agentHas >= last.generation {
		return revision{}
	}
	last.deleting = false
	if a.refused != nil && a.refused.revision == last && (!keepsObjects(work) || starts || a.refused.nothingHeld()) {
		return revision{}
	}
	return last
}

// keepsObjects reports whether objects of a work are to stay when it is deleted. Its deletion waits while its last spec cannot be
// published: by an earlier one, the agent might delete them.
func keepsObjects(work *workv1.ManifestWork) bool {
	option := work.Spec.DeleteOption
	return option != nil && (option.PropagationPolicy == workv1.DeletePropagationPolicyTypeOrphan ||
		option.PropagationPolicy == workv1.DeletePropagationPolicyTypeSelectivelyOrphan)
}

// startsDeletion reports whether the agent of a work has begun to delete it.
func (w *workRecord) startsDeletion(work *workv1.ManifestWork) bool {
	return w.said != saidNothing || meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkDeleting) ||
		meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkDeleted)
}

// planDeletion plans the deletion of a work that the source does not have.
func planDeletion(a *workRecord, source wire.SourceID, now time.Time) plan {
	if a.removed == nil {
		return plan{} // nor was it removed
	}
	p := plan{revision: revision{generation: a.removed.generation, deleting: true}}
	if a.intent < repeat && a.published == p.revision {
		return p // it was published
	}
	p.spec = a.spec(p.revision, source, ptr.Deref(a.removed.meta, metav1.ObjectMeta{}))
	p.spec.NoMetadata = a.removed.meta == nil
	p.spec.DeletionTimestamp = cmp.Or(a.removed.deletedAt, &metav1.Time{Time: now})
	return p
}

// spec returns a spec of r without its content.
func (w *workRecord) spec(r revision, source wire.SourceID, meta metav1.ObjectMeta) *wire.Spec {
	return &wire.Spec{
		UID: w.key.uid, Generation: r.generation, Source: source, Cluster: w.key.cluster, Action: w.action(r), Meta: meta,
	}
}

// confirmedBy returns the generation that the agent reported according to the work's status, 0 for
// none. A refusal has taken the place of its condition Applied, not of Available.
func confirmedBy(work *workv1.ManifestWork) wire.Generation {
	reported := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
	if reported != nil && workv1.IsRefusal(reported.Reason) {
		reported = meta.FindStatusCondition(work.Status.Conditions, workv1.WorkAvailable)
	}
	if reported == nil {
		return 0
	}
	return wire.Generation(reported.ObservedGeneration)
}
